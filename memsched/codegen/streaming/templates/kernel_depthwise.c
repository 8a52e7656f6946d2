
static void depthwise(const layer_t *l, const state_t *s, const int8_t *from, int8_t *to)
{
    const int32_t each = l->made / l->channels;
    window_t w;
    int32_t c, i, x, y;
    open_window(l, s, from, &w);
    for (c = 0; c < l->made; c += TOGETHER) {
        const int32_t count = l->made - c < TOGETHER ? l->made - c : TOGETHER;
        int32_t sum[TOGETHER];
        for (i = 0; i < count; i++) sum[i] = l->bias ? l->bias[c + i] : 0;
        for (y = 0; y < w.rows; y++) {
            const int8_t *weights = l->weights + ((w.y + y) * l->kernel_x + w.x) * l->made + c;
            const int8_t *values = w.part[y];
            for (x = 0; x < w.columns; x++, values += w.step, weights += l->made) {
                if (x == w.pixels[y]) values = w.rest[y];
                if (each > 1) {
                    for (i = 0; i < count; i++) sum[i] += (values[(c + i) / each] - l->zero) * weights[i];
                } else if (count == TOGETHER) {
                    for (i = 0; i < TOGETHER; i++) sum[i] += (values[c + i] - l->zero) * weights[i];
                } else {
                    for (i = 0; i < count; i++) sum[i] += (values[c + i] - l->zero) * weights[i];
                }
            }
        }
        for (i = 0; i < count; i++) {
            const int32_t value = scaled(sum[i], l->multipliers[c + i], l->shifts[c + i]) + l->to_zero;
            to[c + i] = (int8_t)limited(value, l->low, l->high);
        }
    }
}
