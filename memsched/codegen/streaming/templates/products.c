
enum { FILTERS = 4 }; /* that are computed at a time: each value is read once for all of them */

/* Add products of values, which have a zero, with the weights of some filters, each `apart` behind the one before. */
static void add_products(const int8_t *values, const int8_t *weights, int32_t count, int32_t zero, int32_t apart,
                         int32_t filters, int32_t *sum)
{
    int32_t i;
    if (filters == FILTERS) {
        int32_t a = 0, b = 0, c = 0, d = 0;
        for (i = 0; i < count; i++) {
            const int32_t value = values[i] - zero;
            a += value * weights[i];
            b += value * weights[i + apart];
            c += value * weights[i + 2 * apart];
            d += value * weights[i + 3 * apart];
        }
        sum[0] += a;
        sum[1] += b;
        sum[2] += c;
        sum[3] += d;
        return;
    }
    for (; filters > 0; filters--, weights += apart, sum++) {
        int32_t a = 0;
        for (i = 0; i < count; i++) a += (values[i] - zero) * weights[i];
        *sum += a;
    }
}
