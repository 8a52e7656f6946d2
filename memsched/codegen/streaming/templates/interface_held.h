/* Where the input is written before each run, which destroys it. */
int8_t *model_input(void);
/* Run. `in` may be model_input(), or is copied there. */
void model_invoke(const int8_t *in, @output_parameters@);
