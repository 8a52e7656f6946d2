/* Runs the model on every input that comes in, and writes the outputs. With a number of calls it also times them. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "model.h"

static int8_t given[MODEL_INPUT_BYTES];
@buffers@

static void run(void)
{
#if @by_rows@
    unsigned row;
    model_begin(@outputs@);
    for (row = 0; row < MODEL_INPUT_ROWS; row++) model_push_row(given + row * MODEL_ROW_BYTES);
    model_end();
#else
    model_invoke(given, @outputs@);
#endif
}

int main(int count, char **words)
{
    long calls = count > 1 ? atol(words[1]) : 0, call;
    while (fread(given, 1, sizeof given, stdin) == sizeof given) {
        run();
@writes@
        if (calls > 0) {
            clock_t begun = clock();
            for (call = 0; call < calls; call++) run();
            fprintf(stderr, "%.12f\n", (double)(clock() - begun) / CLOCKS_PER_SEC / (double)calls);
        }
    }
    return 0;
}
