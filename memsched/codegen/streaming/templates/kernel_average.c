
static void average(const layer_t *l, const state_t *s, const int8_t *from, int8_t *to)
{
    int32_t sum[TOGETHER], c, i, taps;
    window_t w;
    open_window(l, s, from, &w);
    taps = w.rows * w.columns;
    for (c = 0; c < l->made; c += TOGETHER) {
        const int32_t count = l->made - c < TOGETHER ? l->made - c : TOGETHER;
        sum_up(&w, c, count, sum);
        for (i = 0; i < count; i++) {
            const int32_t value = sum[i] > 0 ? (sum[i] + taps / 2) / taps : (sum[i] - taps / 2) / taps;
            to[c + i] = (int8_t)limited(value, l->low, l->high);
        }
    }
}
