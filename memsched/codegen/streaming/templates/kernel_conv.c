
/* Pixels of a row of the window, which lie behind each other or, where it is dilated, apart. */
static void add_row(const layer_t *l, const window_t *w, const int8_t *values, const int8_t *weights, int32_t pixels,
                    int32_t filters, int32_t *sum)
{
    const int32_t apart = l->kernel_y * l->kernel_x * l->channels;
    if (l->dilation_x == 1) {
        add_products(values, weights, pixels * l->channels, l->zero, apart, filters, sum);
        return;
    }
    for (; pixels > 0; pixels--, values += w->step, weights += l->channels) {
        add_products(values, weights, l->channels, l->zero, apart, filters, sum);
    }
}

static void conv(const layer_t *l, const state_t *s, const int8_t *from, int8_t *to)
{
    window_t w;
    int32_t c, i, y;
    open_window(l, s, from, &w);
    for (c = 0; c < l->made; c += FILTERS) {
        const int32_t filters = l->made - c < FILTERS ? l->made - c : FILTERS;
        const int8_t *weights = l->weights + ((c * l->kernel_y + w.y) * l->kernel_x + w.x) * l->channels;
        int32_t sum[FILTERS];
        for (i = 0; i < filters; i++) sum[i] = l->bias ? l->bias[c + i] : 0;
        for (y = 0; y < w.rows; y++, weights += l->kernel_x * l->channels) {
            const int32_t pixels = w.pixels[y], rest = w.columns - pixels;
            add_row(l, &w, w.part[y], weights, pixels, filters, sum);
            if (rest) add_row(l, &w, w.rest[y], weights + pixels * l->channels, rest, filters, sum);
        }
        for (i = 0; i < filters; i++) {
            const int32_t value = scaled(sum[i], l->multipliers[c + i], l->shifts[c + i]) + l->to_zero;
            to[c + i] = (int8_t)limited(value, l->low, l->high);
        }
    }
}
