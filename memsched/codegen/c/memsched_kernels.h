/* Reference kernels: what each layer of a piece computes. Values are read and written where they lie, at any address.
 *
 * 8-bit layers compute what TensorFlow Lite's reference kernels do, bit by bit.
 */
#ifndef MEMSCHED_KERNELS_H
#define MEMSCHED_KERNELS_H

#include <string.h>

#include "memsched_onchip.h"

/* Room for the channels of one point, which are written together once all is read that they need. */
extern float ms_point_f32[];
extern int8_t ms_point_i8[];

/* Output i needs inputs i * stride - pad + dilation * (0 .. kernel - 1). */
typedef struct {
    int32_t kernel;
    int32_t stride;
    int32_t dilation;
    int32_t pad;
} ms_window;

typedef struct {
    ms_shape in;
    ms_shape out;
    ms_window row;
    ms_window column;
    int32_t groups;
    int32_t bias; /* whether there is one */
    float low;
    float high;
    int32_t input_zero;
    int32_t output_zero;
    int32_t least;
    int32_t most;
    const int32_t *multipliers; /* of each output channel, or of all */
    const int32_t *shifts;
    int32_t per_channel;
} ms_conv_layer;

void ms_conv_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);
/* Adds the products of some input channels, those of `in`, to what is there; the first ones begin with the bias. */
void ms_conv_sums_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                      const ms_constants *c);
void ms_conv_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);

typedef struct {
    ms_shape in;
    ms_shape out;
    ms_window row;
    ms_window column;
    int32_t average; /* 0: the largest; 1: the mean of what is inside; 2: of all the window, the padding as zeros */
    float low;
    float high;
    int32_t least;
    int32_t most;
} ms_pool_layer;

void ms_pool_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);
void ms_pool_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);

/* The mean over rows and columns. */
typedef struct {
    ms_shape in;
    int32_t input_zero;
    int32_t output_zero;
    int32_t multiplier;
    int32_t shift;
} ms_mean_layer;

void ms_mean_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);
void ms_mean_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);

typedef enum {
    MS_CLIP,
    MS_SIGMOID,
    MS_TANH,
    MS_LEAKY_RELU,
    MS_HARD_SIGMOID,
    MS_HARD_SWISH,
    MS_EXP,
    MS_ABS,
    MS_NEG,
    MS_SQRT,
    MS_ELU,
    MS_ERF,
    MS_COPY
} ms_function;

/* A function of each element by itself. */
typedef struct {
    ms_function function;
    float a;
    float b;
    const int8_t *table;   /* 8 bits to 8 bits: per value from -128 on */
    float scale;           /* between 8 bits and floats */
    int32_t zero;
    int32_t element;       /* bytes, for MS_COPY */
} ms_unary_layer;

void ms_unary_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);
void ms_table_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);
void ms_quantize(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);
void ms_dequantize(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                   const ms_constants *c);
void ms_copy(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);

typedef enum { MS_ADD, MS_SUB, MS_MUL, MS_DIV, MS_MAX, MS_MIN, MS_PRELU } ms_operation;

/* An operand: an input, a constant, or one number. What has length 1 on an axis is the same all along it. */
typedef struct {
    int32_t read;     /* -1: a constant */
    int32_t constant; /* -1: one number */
    float value;
    int32_t integer;
    ms_shape shape;
    int32_t zero;
    int32_t multiplier;
    int32_t shift;
} ms_operand;

typedef struct {
    ms_operation operation;
    ms_operand operand[2];
    ms_shape out;
    float low;
    float high;
    int32_t left_shift;
    int32_t output_zero;
    int32_t output_multiplier;
    int32_t output_shift;
    int32_t least;
    int32_t most;
} ms_binary_layer;

void ms_binary_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                   const ms_constants *c);
void ms_binary_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);

/* Batch normalisation: constants are scale, shift, mean and variance of each channel. */
typedef struct {
    float epsilon;
} ms_normalise_layer;

void ms_normalise_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                      const ms_constants *c);

/* Elements from elsewhere: output i of each axis is input (begin + step * i) / divide of the first source that has it,
 * and `fill` where none does. Axes: batch, rows, columns, channels. */
typedef struct {
    int32_t read;
    ms_shape shape;
    int32_t begin[4];
    int32_t step[4];
    int32_t divide[4];
} ms_source;

typedef struct {
    const ms_source *sources;
    int32_t source_count;
    int32_t element;
    uint8_t fill[4];
} ms_move_layer;

void ms_move(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);

typedef struct {
    float beta;
    int32_t multiplier;
    int32_t shift;
    int32_t least; /* differences below this count nothing */
} ms_softmax_layer;

void ms_softmax_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                    const ms_constants *c);
void ms_softmax_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                   const ms_constants *c);

/* Local response normalisation over channels. */
typedef struct {
    int32_t size;
    float alpha;
    float beta;
    float bias;
} ms_lrn_layer;

void ms_lrn_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c);

/* Values at any address -------------------------------------------------------------------------------------------- */

static inline float ms_f32(const uint8_t *at, size_t index)
{
    float value;
    memcpy(&value, at + 4 * index, sizeof(value));
    return value;
}

static inline void ms_put_f32(uint8_t *at, size_t index, float value)
{
    memcpy(at + 4 * index, &value, sizeof(value));
}

static inline int32_t ms_i32(const uint8_t *at, size_t index)
{
    int32_t value;
    memcpy(&value, at + 4 * index, sizeof(value));
    return value;
}

static inline int32_t ms_i8(const uint8_t *at, size_t index)
{
    int8_t value;
    memcpy(&value, at + index, sizeof(value));
    return value;
}

static inline size_t ms_length(ms_range range)
{
    return (size_t)(range.end - range.begin);
}

/* The number of the first value of a point of a piece. */
static inline size_t ms_at(const ms_piece *piece, int32_t batch, int32_t row, int32_t column)
{
    const size_t above = (size_t)batch * ms_length(piece->rows) + (size_t)(row - piece->rows.begin);
    return (above * ms_length(piece->columns) + (size_t)(column - piece->columns.begin)) * ms_length(piece->channels);
}

static inline int32_t ms_clamp(int32_t value, int32_t least, int32_t most)
{
    return value < least ? least : value > most ? most : value;
}

static inline float ms_clamp_f32(float value, float low, float high)
{
    return value < low ? low : value > high ? high : value;
}

/* Fixed point, as gemmlowp and TensorFlow Lite have it ------------------------------------------------------------- */

static inline int32_t ms_doubling_high_mul(int32_t a, int32_t b)
{
    const int64_t product = (int64_t)a * (int64_t)b;
    const int64_t nudge = product >= 0 ? (1 << 30) : (1 - (1 << 30));
    if (a == b && a == INT32_MIN) {
        return INT32_MAX;
    }
    return (int32_t)((product + nudge) / ((int64_t)1 << 31));
}

/* Shift right, and round halves away from zero. */
static inline int32_t ms_rounding_shift(int32_t value, int32_t exponent)
{
    const int32_t mask = (int32_t)(((int64_t)1 << exponent) - 1);
    const int32_t rest = value & mask;
    const int32_t threshold = (mask >> 1) + (value < 0 ? 1 : 0);
    return (value >> exponent) + (rest > threshold ? 1 : 0);
}

/* value * multiplier * 2^(shift - 31), rounded twice. */
static inline int32_t ms_scaled(int32_t value, int32_t multiplier, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
    return ms_rounding_shift(ms_doubling_high_mul((int32_t)((uint32_t)value << left), multiplier), right);
}

#endif
