/* Begin a run; outputs are complete after model_end. */
void model_begin(@output_parameters@);
/* Give the next row of the input, MODEL_ROW_BYTES, from the top. */
void model_push_row(const int8_t *row);
/* End the run, after MODEL_INPUT_ROWS rows. */
void model_end(void);
