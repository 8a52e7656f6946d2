
/* Products with the whole map, to which each pixel is added as it comes. */
static void dense(const layer_t *l, const state_t *s, const int8_t *from, int8_t *sums, int8_t *to)
{
    const int32_t pixels = l->steps_y * l->steps_x, pixel = s->y * l->steps_x + s->x;
    int32_t c;
    for (c = 0; c < l->made; c++) {
        int32_t sum = pixel ? sum_of(sums, c, 1) : l->bias ? l->bias[c] : 0;
        add_products(from, l->weights + (c * pixels + pixel) * l->channels, l->channels, l->zero, 0, 1, &sum);
        keep_sum(sums, c, sum, 1);
    }
    if (pixel + 1 < pixels) return;
    for (c = 0; c < l->made; c++) {
        const int32_t value = scaled(sum_of(sums, c, 1), l->multipliers[c], l->shifts[c]) + l->to_zero;
        to[c] = (int8_t)limited(value, l->low, l->high);
    }
}
