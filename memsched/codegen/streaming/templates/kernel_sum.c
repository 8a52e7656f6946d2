
/* multipliers: one, or none for an average; other_ring: bytes of a sum. */
static void sum(const layer_t *l, const state_t *s, const int8_t *from, int8_t *sums, int8_t *to)
{
    const int32_t pixels = l->steps_y * l->steps_x, wide = l->other_ring == 4;
    int32_t c;
    for (c = 0; c < l->made; c++) {
        keep_sum(sums, c, (s->y || s->x ? sum_of(sums, c, wide) : 0) + from[c], wide);
    }
    if (s->y + 1 < l->steps_y || s->x + 1 < l->steps_x) return;
    for (c = 0; c < l->made; c++) {
        int32_t value = sum_of(sums, c, wide);
        if (l->multipliers) {
            value = scaled(value - l->zero * pixels, l->multipliers[0], l->shifts[0]) + l->to_zero;
        } else {
            value = value > 0 ? (value + pixels / 2) / pixels : (value - pixels / 2) / pixels;
        }
        to[c] = (int8_t)limited(value, l->low, l->high);
    }
}
