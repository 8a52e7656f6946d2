
/* multipliers: of both operands and of the result, then the shift to the left and the zero of the second operand;
 * shifts: of both operands and of the result. */
static void binary(const layer_t *l, const int8_t *one, const int8_t *other, int8_t *to)
{
    const int32_t *m = l->multipliers;
    const int8_t *e = l->shifts;
    const int32_t step = l->channels > 1 || l->made == 1, other_step = l->other_channels > 1 || l->made == 1;
    int32_t c;
    for (c = 0; c < l->made; c++) {
        int32_t a = one[c * step] - l->zero, b = other[c * other_step] - m[4];
        if (l->kind == MUL) {
            a *= b;
        } else {
            a = scaled(a * (1 << m[3]), m[0], e[0]);
            b = scaled(b * (1 << m[3]), m[1], e[1]);
            a = l->kind == ADD ? a + b : l->kind == SUB ? a - b : b - a;
        }
        to[c] = (int8_t)limited(scaled(a, m[2], e[2]) + l->to_zero, l->low, l->high);
    }
}
