
void model_invoke(const int8_t *in, @output_parameters@)
{
    const caller_t caller = {in, {@output_values@}};
    int32_t number;
    for (number = 0; number < @segments@; number++) {
        const layer_t *first = layers + segments[number].first;
        const int32_t count = segments[number].last - segments[number].first + 1;
        begin(first, count);
        run(&caller, first, segments[number].reader, 0);
    }
}
