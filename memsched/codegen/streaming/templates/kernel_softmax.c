
static int32_t saturated_shift(int32_t value, int32_t bits)
{
    const int64_t found = (int64_t)value * ((int64_t)1 << bits);
    return found > INT32_MAX ? INT32_MAX : found < INT32_MIN ? INT32_MIN : (int32_t)found;
}

/* e to the power of -1/4 <= a < 0, with 31 fractional bits. */
static int32_t power_between_quarter(int32_t a)
{
    const int32_t x = a + (1 << 28), x2 = high_product(x, x), x3 = high_product(x2, x), x4 = high_product(x2, x2);
    const int32_t rest = rounded_shift(high_product(rounded_shift(x4, 2) + x3, 715827883) + x2, 1);
    return 1895147668 + high_product(1895147668, x + rest);
}

/* e to the power of a <= 0, which has 26 fractional bits. */
static int32_t power(int32_t a)
{
    static const int32_t factors[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t quarter = 1 << 24, part = (a & (quarter - 1)) - quarter, rest = part - a;
    int32_t found, bit;
    if (a == 0) return INT32_MAX;
    found = power_between_quarter(saturated_shift(part, 5));
    for (bit = 0; bit < 7; bit++) {
        if (rest & (int32_t)(1u << (24 + bit))) found = high_product(found, factors[bit]);
    }
    return found;
}

/* 1 / (1 + a) by Newton's method. */
static int32_t one_over_one_plus(int32_t a)
{
    const int64_t sum = (int64_t)a + INT32_MAX;
    const int32_t half = (int32_t)((sum + (sum >= 0 ? 1 : -1)) / 2);
    int32_t x = 1515870810 + high_product(half, -1010580540), turn;
    for (turn = 0; turn < 3; turn++) {
        x += saturated_shift(high_product(x, (1 << 29) - high_product(half, x)), 2);
    }
    return saturated_shift(x, 1);
}

/* multipliers: of the difference to the largest value, and the least difference that counts. */
static void softmax(const layer_t *l, const int8_t *from, int8_t *to)
{
    const int32_t multiplier = l->multipliers[0], least = l->multipliers[1], shift = l->shifts[0];
    int32_t most = -128, sum = 0, zeros = 0, scale, c;
    for (c = 0; c < l->made; c++) most = from[c] > most ? from[c] : most;
    for (c = 0; c < l->made; c++) {
        const int32_t difference = from[c] - most;
        if (difference >= least) sum += rounded_shift(power(scaled(difference, multiplier, shift)), 12);
    }
    while (zeros < 32 && !((uint32_t)sum << zeros & 0x80000000u)) zeros++;
    scale = one_over_one_plus((int32_t)(((uint32_t)sum << zeros) - 0x80000000u));
    for (c = 0; c < l->made; c++) {
        const int32_t difference = from[c] - most;
        int32_t value = -128;
        if (difference >= least) {
            const int32_t found = high_product(scale, power(scaled(difference, multiplier, shift)));
            value = rounded_shift(found, 12 - zeros + 31 - 8) - 128;
        }
        to[c] = (int8_t)limited(value, -128, 127);
    }
}
