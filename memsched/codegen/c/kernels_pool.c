#include <float.h>

#include "memsched_kernels.h"

static ms_range inside(const ms_window *w, int32_t point, int32_t length)
{
    ms_range found;
    found.begin = point * w->stride - w->pad;
    found.end = found.begin + (w->kernel - 1) * w->dilation + 1;
    while (found.begin < 0) {
        found.begin += w->dilation;
    }
    if (found.end > length) {
        found.end = length;
    }
    return found;
}

/* How many of [begin, end) are met in steps. */
static int32_t taps(ms_range range, int32_t step)
{
    return (range.end - range.begin + step - 1) / step;
}

void ms_pool_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_pool_layer *l = layer;
    int32_t b, y, x, o, row, column;
    (void)c;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            const ms_range tall = inside(&l->row, y, l->in.rows);
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                const ms_range wide = inside(&l->column, x, l->in.columns);
                const int32_t count = l->average == 2 ? l->row.kernel * l->column.kernel
                                                      : taps(tall, l->row.dilation) * taps(wide, l->column.dilation);
                for (o = channels.begin; o < channels.end; ++o) {
                    float found = l->average ? 0.0f : -FLT_MAX;
                    for (row = tall.begin; row < tall.end; row += l->row.dilation) {
                        for (column = wide.begin; column < wide.end; column += l->column.dilation) {
                            const size_t at = ms_at(in, b, row, column) + (size_t)(o - in->channels.begin);
                            const float value = ms_f32(in->data, at);
                            found = l->average ? found + value : value > found ? value : found;
                        }
                    }
                    found = l->average ? found / (float)count : found;
                    ms_point_f32[o - channels.begin] = ms_clamp_f32(found, l->low, l->high);
                }
                memcpy(out->data + 4 * (ms_at(out, b, y, x) + (size_t)(channels.begin - out->channels.begin)),
                       ms_point_f32, 4 * ms_length(channels));
            }
        }
    }
}

void ms_pool_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_pool_layer *l = layer;
    int32_t b, y, x, o, row, column;
    (void)c;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            const ms_range tall = inside(&l->row, y, l->in.rows);
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                const ms_range wide = inside(&l->column, x, l->in.columns);
                const int32_t count = taps(tall, 1) * taps(wide, 1);
                for (o = channels.begin; o < channels.end; ++o) {
                    int32_t found = l->average ? 0 : -128;
                    for (row = tall.begin; row < tall.end; ++row) {
                        for (column = wide.begin; column < wide.end; ++column) {
                            const size_t at = ms_at(in, b, row, column) + (size_t)(o - in->channels.begin);
                            const int32_t value = ms_i8(in->data, at);
                            found = l->average ? found + value : value > found ? value : found;
                        }
                    }
                    if (l->average) {
                        found = found > 0 ? (found + count / 2) / count : (found - count / 2) / count;
                    }
                    ms_point_i8[o - channels.begin] = (int8_t)ms_clamp(found, l->least, l->most);
                }
                memcpy(out->data + ms_at(out, b, y, x) + (size_t)(channels.begin - out->channels.begin), ms_point_i8,
                       ms_length(channels));
            }
        }
    }
}

void ms_mean_f32(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_mean_layer *l = layer;
    int32_t b, o, row, column;
    (void)c;
    for (b = 0; b < in->batch; ++b) {
        for (o = channels.begin; o < channels.end; ++o) {
            float sum = 0.0f;
            for (row = 0; row < l->in.rows; ++row) {
                for (column = 0; column < l->in.columns; ++column) {
                    sum += ms_f32(in->data, ms_at(in, b, row, column) + (size_t)(o - in->channels.begin));
                }
            }
            ms_put_f32(out->data, (size_t)b * ms_length(in->channels) + (size_t)(o - out->channels.begin),
                       sum / (float)(l->in.rows * l->in.columns));
        }
    }
}

void ms_mean_i8(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_mean_layer *l = layer;
    int32_t b, o, row, column;
    (void)c;
    for (b = 0; b < in->batch; ++b) {
        for (o = channels.begin; o < channels.end; ++o) {
            const size_t to = (size_t)b * ms_length(in->channels) + (size_t)(o - out->channels.begin);
            int32_t sum = 0;
            for (row = 0; row < l->in.rows; ++row) {
                for (column = 0; column < l->in.columns; ++column) {
                    sum += ms_i8(in->data, ms_at(in, b, row, column) + (size_t)(o - in->channels.begin));
                }
            }
            sum = ms_scaled(sum - l->input_zero * l->in.rows * l->in.columns, l->multiplier, l->shift);
            out->data[to] = (uint8_t)ms_clamp(sum + l->output_zero, -128, 127);
        }
    }
}
