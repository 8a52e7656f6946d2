#include <math.h>

#include "memsched_kernels.h"

/* Softmax of one point; `to` may be `from`. */
static void softmax_point_f32(const ms_softmax_layer *l, const uint8_t *from, uint8_t *to, size_t count)
{
    float most = ms_f32(from, 0), sum = 0.0f;
    size_t at;
    for (at = 1; at < count; ++at) {
        const float value = ms_f32(from, at);
        most = value > most ? value : most;
    }
    for (at = 0; at < count; ++at) {
        ms_point_f32[at] = expf((ms_f32(from, at) - most) * l->beta);
        sum += ms_point_f32[at];
    }
    for (at = 0; at < count; ++at) {
        ms_put_f32(to, at, ms_point_f32[at] / sum);
    }
}

void ms_softmax_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                    const ms_constants *c)
{
    int32_t b, y, x;
    (void)c;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                softmax_point_f32(layer, in->data + 4 * ms_at(in, b, y, x), out->data + 4 * ms_at(out, b, y, x),
                                  ms_length(channels));
            }
        }
    }
}

/* Fixed point: `value * 2^shift`, kept within 32 bits. */
static int32_t saturating_shift(int32_t value, int32_t shift)
{
    const int64_t found = (int64_t)value * ((int64_t)1 << shift);
    return found > INT32_MAX ? INT32_MAX : found < INT32_MIN ? INT32_MIN : (int32_t)found;
}

/* e^x of -1/4 <= x < 0, with no integer bits. */
static int32_t exp_between_quarter(int32_t a)
{
    const int32_t term = 1895147668, third = 715827883;
    const int32_t x = a + (1 << 28);
    const int32_t x2 = ms_doubling_high_mul(x, x), x3 = ms_doubling_high_mul(x2, x);
    const int32_t x4 = ms_doubling_high_mul(x2, x2);
    const int32_t x4_4 = ms_rounding_shift(x4, 2);
    const int32_t sum = ms_rounding_shift(ms_doubling_high_mul(x4_4 + x3, third) + x2, 1);
    return term + ms_doubling_high_mul(term, x + sum);
}

/* e^a of a <= 0 with 5 integer bits; the result has none. */
static int32_t exp_on_negative(int32_t a)
{
    static const int32_t factors[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t quarter = 1 << 24, mask = quarter - 1;
    const int32_t part = (a & mask) - quarter, rest = part - a;
    int32_t found, bit;
    if (a == 0) {
        return INT32_MAX;
    }
    found = exp_between_quarter(saturating_shift(part, 5));
    for (bit = 0; bit < 7; ++bit) {
        if (rest & (int32_t)(1u << (24 + bit))) {
            found = ms_doubling_high_mul(found, factors[bit]);
        }
    }
    return found;
}

static int32_t half_sum(int32_t a, int32_t b)
{
    const int64_t sum = (int64_t)a + b;
    return (int32_t)((sum + (sum >= 0 ? 1 : -1)) / 2);
}

/* 1 / (1 + a) of 0 <= a <= 1 by Newton's method. */
static int32_t one_over_one_plus(int32_t a)
{
    const int32_t half = half_sum(a, INT32_MAX);
    int32_t x = 1515870810 + ms_doubling_high_mul(half, -1010580540), turn;
    for (turn = 0; turn < 3; ++turn) {
        const int32_t rest = (1 << 29) - ms_doubling_high_mul(half, x);
        x += saturating_shift(ms_doubling_high_mul(x, rest), 2);
    }
    return saturating_shift(x, 1);
}

static int32_t leading_zeros(uint32_t value)
{
    int32_t found = 0;
    while (found < 32 && !(value & 0x80000000u)) {
        value <<= 1;
        ++found;
    }
    return found;
}

static void softmax_point_i8(const ms_softmax_layer *l, const uint8_t *from, uint8_t *to, size_t count)
{
    int32_t most = -128, sum = 0, zeros, scale, bits;
    size_t at;
    for (at = 0; at < count; ++at) {
        most = ms_i8(from, at) > most ? ms_i8(from, at) : most;
    }
    for (at = 0; at < count; ++at) {
        const int32_t difference = ms_i8(from, at) - most;
        if (difference >= l->least) {
            sum += ms_rounding_shift(exp_on_negative(ms_scaled(difference, l->multiplier, l->shift)), 12);
        }
    }
    zeros = leading_zeros((uint32_t)sum);
    bits = 12 - zeros;
    scale = one_over_one_plus((int32_t)(((uint32_t)sum << zeros) - 0x80000000u));
    for (at = 0; at < count; ++at) {
        const int32_t difference = ms_i8(from, at) - most;
        int32_t found = -128;
        if (difference >= l->least) {
            const int32_t power = exp_on_negative(ms_scaled(difference, l->multiplier, l->shift));
            found = ms_rounding_shift(ms_doubling_high_mul(scale, power), bits + 31 - 8) - 128;
        }
        ms_point_i8[at] = (int8_t)ms_clamp(found, -128, 127);
    }
    memcpy(to, ms_point_i8, count);
}

void ms_softmax_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                   const ms_constants *c)
{
    int32_t b, y, x;
    (void)c;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                softmax_point_i8(layer, in->data + ms_at(in, b, y, x), out->data + ms_at(out, b, y, x),
                                 ms_length(channels));
            }
        }
    }
}

void ms_lrn_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_lrn_layer *l = layer;
    const int32_t below = (l->size - 1) / 2, above = l->size - 1 - below;
    int32_t b, y, x, o, near;
    (void)c;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                const uint8_t *from = in->data + 4 * ms_at(in, b, y, x);
                for (o = 0; o < channels.end; ++o) {
                    float sum = 0.0f;
                    for (near = o - below < 0 ? 0 : o - below; near <= o + above && near < channels.end; ++near) {
                        sum += ms_f32(from, (size_t)near) * ms_f32(from, (size_t)near);
                    }
                    ms_point_f32[o] = ms_f32(from, (size_t)o) /
                                      powf(l->bias + l->alpha / (float)l->size * sum, l->beta);
                }
                memcpy(out->data + 4 * ms_at(out, b, y, x), ms_point_f32, 4 * ms_length(channels));
            }
        }
    }
}
