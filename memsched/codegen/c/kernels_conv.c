#include "memsched_kernels.h"

/* Taps of a window that lie inside [0, length). */
static ms_range inside(const ms_window *w, int32_t point, int32_t length)
{
    const int32_t first = point * w->stride - w->pad;
    ms_range found;
    found.begin = first < 0 ? (-first + w->dilation - 1) / w->dilation : 0;
    found.end = w->kernel;
    while (found.end > found.begin && first + (found.end - 1) * w->dilation >= length) {
        --found.end;
    }
    return found;
}

void ms_conv_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_conv_layer *l = layer;
    const int32_t each = l->in.channels / l->groups, made = l->out.channels / l->groups;
    const size_t filter = (size_t)l->row.kernel * (size_t)l->column.kernel * (size_t)each;
    int32_t b, y, x, o, ky, kx, i;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            const ms_range tall = inside(&l->row, y, l->in.rows);
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                const ms_range wide = inside(&l->column, x, l->in.columns);
                const size_t to = ms_at(out, b, y, x) + (size_t)(channels.begin - out->channels.begin);
                for (o = channels.begin; o < channels.end; ++o) {
                    const uint8_t *weights = c->at[0] + 4 * filter * (size_t)(o - c->first);
                    const size_t group = (size_t)(o / made * each - in->channels.begin);
                    float sum = 0.0f;
                    for (ky = tall.begin; ky < tall.end; ++ky) {
                        for (kx = wide.begin; kx < wide.end; ++kx) {
                            const int32_t row = y * l->row.stride - l->row.pad + ky * l->row.dilation;
                            const int32_t column = x * l->column.stride - l->column.pad + kx * l->column.dilation;
                            const uint8_t *from = in->data + 4 * (ms_at(in, b, row, column) + group);
                            const uint8_t *by = weights + 4 * (size_t)((ky * l->column.kernel + kx) * each);
                            for (i = 0; i < each; ++i) {
                                sum += ms_f32(from, (size_t)i) * ms_f32(by, (size_t)i);
                            }
                        }
                    }
                    if (l->bias) {
                        sum += ms_f32(c->at[1], (size_t)(o - c->first));
                    }
                    ms_point_f32[o - channels.begin] = ms_clamp_f32(sum, l->low, l->high);
                }
                memcpy(out->data + 4 * to, ms_point_f32, 4 * ms_length(channels));
            }
        }
    }
}

void ms_conv_sums_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                      const ms_constants *c)
{
    const ms_conv_layer *l = layer;
    const int32_t each = in->channels.end - in->channels.begin;
    const size_t filter = (size_t)l->row.kernel * (size_t)l->column.kernel * (size_t)each;
    int32_t b, y, x, o, ky, kx, i;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            const ms_range tall = inside(&l->row, y, l->in.rows);
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                const ms_range wide = inside(&l->column, x, l->in.columns);
                uint8_t *to = out->data + 4 * (ms_at(out, b, y, x) + (size_t)(channels.begin - out->channels.begin));
                if (in->channels.begin > 0) {
                    memcpy(ms_point_f32, to, 4 * ms_length(channels));
                }
                for (o = channels.begin; o < channels.end; ++o) {
                    const uint8_t *weights = c->at[0] + 4 * filter * (size_t)(o - c->first);
                    float sum = 0.0f;
                    for (ky = tall.begin; ky < tall.end; ++ky) {
                        for (kx = wide.begin; kx < wide.end; ++kx) {
                            const int32_t row = y * l->row.stride - l->row.pad + ky * l->row.dilation;
                            const int32_t column = x * l->column.stride - l->column.pad + kx * l->column.dilation;
                            const uint8_t *from = in->data + 4 * ms_at(in, b, row, column);
                            const uint8_t *by = weights + 4 * (size_t)((ky * l->column.kernel + kx) * each);
                            for (i = 0; i < each; ++i) {
                                sum += ms_f32(from, (size_t)i) * ms_f32(by, (size_t)i);
                            }
                        }
                    }
                    if (in->channels.begin > 0) {
                        sum += ms_point_f32[o - channels.begin];
                    } else if (l->bias) {
                        sum += ms_f32(c->at[1], (size_t)(o - c->first));
                    }
                    if (in->channels.end == l->in.channels) {
                        sum = ms_clamp_f32(sum, l->low, l->high);
                    }
                    ms_point_f32[o - channels.begin] = sum;
                }
                memcpy(to, ms_point_f32, 4 * ms_length(channels));
            }
        }
    }
}

void ms_conv_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_conv_layer *l = layer;
    const int32_t each = l->in.channels / l->groups, made = l->out.channels / l->groups;
    const size_t filter = (size_t)l->row.kernel * (size_t)l->column.kernel * (size_t)each;
    int32_t b, y, x, o, ky, kx, i;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            const ms_range tall = inside(&l->row, y, l->in.rows);
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                const ms_range wide = inside(&l->column, x, l->in.columns);
                const size_t to = ms_at(out, b, y, x) + (size_t)(channels.begin - out->channels.begin);
                for (o = channels.begin; o < channels.end; ++o) {
                    const uint8_t *weights = c->at[0] + filter * (size_t)(o - c->first);
                    const size_t group = (size_t)(o / made * each - in->channels.begin);
                    const int32_t scale = l->per_channel ? o : 0;
                    int32_t sum = 0;
                    for (ky = tall.begin; ky < tall.end; ++ky) {
                        for (kx = wide.begin; kx < wide.end; ++kx) {
                            const int32_t row = y * l->row.stride - l->row.pad + ky * l->row.dilation;
                            const int32_t column = x * l->column.stride - l->column.pad + kx * l->column.dilation;
                            const uint8_t *from = in->data + ms_at(in, b, row, column) + group;
                            const uint8_t *by = weights + (size_t)((ky * l->column.kernel + kx) * each);
                            for (i = 0; i < each; ++i) {
                                sum += (ms_i8(from, (size_t)i) - l->input_zero) * ms_i8(by, (size_t)i);
                            }
                        }
                    }
                    if (l->bias) {
                        sum += ms_i32(c->at[1], (size_t)(o - c->first));
                    }
                    sum = ms_scaled(sum, l->multipliers[scale], l->shifts[scale]) + l->output_zero;
                    ms_point_i8[o - channels.begin] = (int8_t)ms_clamp(sum, l->least, l->most);
                }
                memcpy(out->data + to, ms_point_i8, ms_length(channels));
            }
        }
    }
}
