/* Run. `in` is only read. */
void model_invoke(const int8_t *in, @output_parameters@);
