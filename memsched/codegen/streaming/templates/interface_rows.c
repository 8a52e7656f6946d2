
static caller_t caller;
static pixel_t pushed;

void model_begin(@output_parameters@)
{
    int8_t *const given[] = {@output_values@};
    memcpy(caller.output, given, sizeof given);
    pushed = 0;
    begin(layers, segments[0].last + 1);
}

void model_push_row(const int8_t *row)
{
    int32_t x;
    for (x = 0; x < @input_columns@; x++, row += @input_channels@) {
        memcpy(arena + @input_place@ + pushed % @input_ring@ * @input_channels@, row, @input_channels@);
        pushed++;
        run(&caller, layers, segments[0].reader, pushed);
    }
}

void model_end(void)
{
    int32_t number;
    for (number = 1; number < @segments@; number++) {
        const layer_t *first = layers + segments[number].first;
        const int32_t count = segments[number].last - segments[number].first + 1;
        begin(first, count);
        run(&caller, first, segments[number].reader, 0);
    }
}
