
/* Sums over a window of values [first, first + count) of its pixels. */
static void sum_up(const window_t *w, int32_t first, int32_t count, int32_t *sum)
{
    int32_t i, x, y;
    for (i = 0; i < count; i++) sum[i] = 0;
    for (y = 0; y < w->rows; y++) {
        const int8_t *values = w->part[y];
        for (x = 0; x < w->columns; x++, values += w->step) {
            if (x == w->pixels[y]) values = w->rest[y];
            for (i = 0; i < count; i++) sum[i] += values[first + i];
        }
    }
}
