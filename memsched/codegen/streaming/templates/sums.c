
/* Sums lie where the result will be, at any address. */
static int32_t sum_of(const int8_t *sums, int32_t c, int32_t wide)
{
    int16_t narrow;
    int32_t sum;
    if (wide) {
        memcpy(&sum, sums + 4 * c, 4);
        return sum;
    }
    memcpy(&narrow, sums + 2 * c, 2);
    return narrow;
}

static void keep_sum(int8_t *sums, int32_t c, int32_t sum, int32_t wide)
{
    const int16_t narrow = (int16_t)sum;
    if (wide) {
        memcpy(sums + 4 * c, &sum, 4);
    } else {
        memcpy(sums + 2 * c, &narrow, 2);
    }
}
