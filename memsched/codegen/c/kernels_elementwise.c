#include <math.h>

#include "memsched_kernels.h"

static size_t count_of(const ms_piece *piece)
{
    return (size_t)piece->batch * ms_length(piece->rows) * ms_length(piece->columns) * ms_length(piece->channels);
}

/* The number of the value of `piece` at a point of the output. */
static size_t same_point(const ms_piece *piece, int32_t b, int32_t y, int32_t x, int32_t o)
{
    return ms_at(piece, b, y, x) + (size_t)(o - piece->channels.begin);
}

static float applied(const ms_unary_layer *l, float x)
{
    switch (l->function) {
    case MS_CLIP:
        return ms_clamp_f32(x, l->a, l->b);
    case MS_SIGMOID:
        return 1.0f / (1.0f + expf(-x));
    case MS_TANH:
        return tanhf(x);
    case MS_LEAKY_RELU:
        return x < 0.0f ? l->a * x : x;
    case MS_HARD_SIGMOID:
        return ms_clamp_f32(l->a * x + l->b, 0.0f, 1.0f);
    case MS_HARD_SWISH:
        return x * ms_clamp_f32(x / 6.0f + 0.5f, 0.0f, 1.0f);
    case MS_EXP:
        return expf(x);
    case MS_ABS:
        return fabsf(x);
    case MS_NEG:
        return -x;
    case MS_SQRT:
        return sqrtf(x);
    case MS_ELU:
        return x < 0.0f ? l->a * (expf(x) - 1.0f) : x;
    case MS_ERF:
        return erff(x);
    case MS_COPY:
        break;
    }
    return x;
}

void ms_unary_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_unary_layer *l = layer;
    int32_t b, y, x, o;
    (void)c;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                for (o = channels.begin; o < channels.end; ++o) {
                    const float value = ms_f32(in->data, same_point(in, b, y, x, o));
                    ms_put_f32(out->data, same_point(out, b, y, x, o), applied(l, value));
                }
            }
        }
    }
}

void ms_table_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_unary_layer *l = layer;
    int32_t b, y, x, o;
    (void)c;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                for (o = channels.begin; o < channels.end; ++o) {
                    const int32_t value = ms_i8(in->data, same_point(in, b, y, x, o));
                    out->data[same_point(out, b, y, x, o)] = (uint8_t)l->table[value + 128];
                }
            }
        }
    }
}

void ms_quantize(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_unary_layer *l = layer;
    int32_t b, y, x, o;
    (void)c;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                for (o = channels.begin; o < channels.end; ++o) {
                    const float value = roundf(ms_f32(in->data, same_point(in, b, y, x, o)) / l->scale);
                    const float found = ms_clamp_f32(value + (float)l->zero, -128.0f, 127.0f);
                    out->data[same_point(out, b, y, x, o)] = (uint8_t)(int32_t)found;
                }
            }
        }
    }
}

/* Floats are larger than what they are made of: no output lies over its input. */
void ms_dequantize(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                   const ms_constants *c)
{
    const ms_unary_layer *l = layer;
    int32_t b, y, x, o;
    (void)c;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                for (o = channels.begin; o < channels.end; ++o) {
                    const int32_t value = ms_i8(in->data, same_point(in, b, y, x, o));
                    ms_put_f32(out->data, same_point(out, b, y, x, o), l->scale * (float)(value - l->zero));
                }
            }
        }
    }
}

void ms_copy(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_unary_layer *l = layer;
    (void)c;
    (void)channels;
    if (out->data != in->data) {
        memmove(out->data, in->data, count_of(out) * (size_t)l->element);
    }
}

/* Where the value of an operand is that meets a point of the output. */
static size_t met(const ms_operand *p, const ms_piece *in, int32_t first, int32_t b, int32_t y, int32_t x, int32_t o)
{
    const int32_t batch = p->shape.batch > 1 ? b : 0, row = p->shape.rows > 1 ? y : 0;
    const int32_t column = p->shape.columns > 1 ? x : 0, channel = p->shape.channels > 1 ? o : 0;
    if (p->read >= 0) {
        return ms_at(&in[p->read], batch, row, column) + (size_t)(channel - in[p->read].channels.begin);
    }
    if (p->shape.rows * p->shape.columns * p->shape.batch == 1) {
        return (size_t)(p->shape.channels > 1 ? channel - first : 0);
    }
    return (size_t)(((batch * p->shape.rows + row) * p->shape.columns + column) * p->shape.channels + channel);
}

static float combined(ms_operation operation, float a, float b)
{
    switch (operation) {
    case MS_ADD:
        return a + b;
    case MS_SUB:
        return a - b;
    case MS_MUL:
        return a * b;
    case MS_DIV:
        return a / b;
    case MS_MAX:
        return a > b ? a : b;
    case MS_MIN:
        return a < b ? a : b;
    case MS_PRELU:
        return a < 0.0f ? a * b : a;
    }
    return a;
}

void ms_binary_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                   const ms_constants *c)
{
    const ms_binary_layer *l = layer;
    int32_t b, y, x, o, side;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                for (o = channels.begin; o < channels.end; ++o) {
                    float value[2];
                    for (side = 0; side < 2; ++side) {
                        const ms_operand *p = &l->operand[side];
                        if (p->read < 0 && p->constant < 0) {
                            value[side] = p->value;
                        } else {
                            const uint8_t *from = p->read >= 0 ? in[p->read].data : c->at[p->constant];
                            value[side] = ms_f32(from, met(p, in, c->first, b, y, x, o));
                        }
                    }
                    ms_put_f32(out->data, same_point(out, b, y, x, o),
                               ms_clamp_f32(combined(l->operation, value[0], value[1]), l->low, l->high));
                }
            }
        }
    }
}

void ms_binary_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_binary_layer *l = layer;
    int32_t b, y, x, o, side;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                for (o = channels.begin; o < channels.end; ++o) {
                    int32_t value[2], found;
                    for (side = 0; side < 2; ++side) {
                        const ms_operand *p = &l->operand[side];
                        if (p->read < 0 && p->constant < 0) {
                            value[side] = p->integer;
                        } else {
                            const size_t at = met(p, in, c->first, b, y, x, o);
                            value[side] = p->read >= 0 ? ms_i8(in[p->read].data, at) : ms_i32(c->at[p->constant], at);
                        }
                        value[side] -= p->zero;
                    }
                    if (l->operation == MS_MUL) {
                        found = value[0] * value[1];
                    } else {
                        for (side = 0; side < 2; ++side) {
                            value[side] = ms_scaled(value[side] * (1 << l->left_shift), l->operand[side].multiplier,
                                                    l->operand[side].shift);
                        }
                        found = l->operation == MS_ADD ? value[0] + value[1] : value[0] - value[1];
                    }
                    found = ms_scaled(found, l->output_multiplier, l->output_shift) + l->output_zero;
                    out->data[same_point(out, b, y, x, o)] = (uint8_t)ms_clamp(found, l->least, l->most);
                }
            }
        }
    }
}

void ms_normalise_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                      const ms_constants *c)
{
    const ms_normalise_layer *l = layer;
    int32_t b, y, x, o;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                for (o = channels.begin; o < channels.end; ++o) {
                    const size_t at = (size_t)(o - c->first);
                    const float factor = ms_f32(c->at[0], at) / sqrtf(ms_f32(c->at[3], at) + l->epsilon);
                    const float value = ms_f32(in->data, same_point(in, b, y, x, o)) - ms_f32(c->at[2], at);
                    ms_put_f32(out->data, same_point(out, b, y, x, o), value * factor + ms_f32(c->at[1], at));
                }
            }
        }
    }
}
