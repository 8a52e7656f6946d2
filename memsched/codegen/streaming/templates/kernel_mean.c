
static void mean(const layer_t *l, const state_t *s, const int8_t *from, int8_t *to)
{
    int32_t sum[TOGETHER], c, i, zeros;
    window_t w;
    open_window(l, s, from, &w);
    zeros = l->zero * w.rows * w.columns;
    for (c = 0; c < l->made; c += TOGETHER) {
        const int32_t count = l->made - c < TOGETHER ? l->made - c : TOGETHER;
        sum_up(&w, c, count, sum);
        for (i = 0; i < count; i++) {
            const int32_t value = scaled(sum[i] - zeros, l->multipliers[0], l->shifts[0]) + l->to_zero;
            to[c + i] = (int8_t)limited(value, l->low, l->high);
        }
    }
}
