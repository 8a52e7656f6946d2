
int8_t *model_input(void)
{
    return arena + @input_place@;
}

void model_invoke(const int8_t *in, @output_parameters@)
{
    const caller_t caller = {NULL, {@output_values@}};
    int32_t number;
    if (in != model_input()) memcpy(model_input(), in, MODEL_INPUT_BYTES);
    for (number = 0; number < @segments@; number++) {
        const layer_t *first = layers + segments[number].first;
        const int32_t count = segments[number].last - segments[number].first + 1;
        begin(first, count);
        run(&caller, first, segments[number].reader, 0);
    }
}
