#include "memsched_kernels.h"

/* The input of an axis that output `at` is; -1 where it is none of this source's. */
static int32_t moved(const ms_source *s, int axis, int32_t at, int32_t length)
{
    const int32_t found = s->begin[axis] + s->step[axis] * at;
    return found < 0 || found / s->divide[axis] >= length ? -1 : found / s->divide[axis];
}

/* Write one point: its channels from the sources that have it. */
static void point(const ms_move_layer *l, const ms_piece *in, uint8_t *to, int32_t b, int32_t y, int32_t x,
                  ms_range channels)
{
    const size_t element = (size_t)l->element;
    uint8_t *room = (uint8_t *)ms_point_f32;
    int32_t o, from;
    for (o = 0; o < channels.end - channels.begin; ++o) {
        memcpy(room + (size_t)o * element, l->fill, element);
    }
    for (from = 0; from < l->source_count; ++from) {
        const ms_source *s = &l->sources[from];
        const ms_piece *piece = &in[s->read];
        const int32_t batch = moved(s, 0, b, s->shape.batch), row = moved(s, 1, y, s->shape.rows);
        const int32_t column = moved(s, 2, x, s->shape.columns);
        size_t at;
        if (batch < 0 || row < 0 || column < 0) {
            continue;
        }
        at = ms_at(piece, batch, row, column);
        for (o = channels.begin; o < channels.end; ++o) {
            const int32_t channel = moved(s, 3, o, s->shape.channels);
            if (channel >= 0) {
                memcpy(room + (size_t)(o - channels.begin) * element,
                       piece->data + (at + (size_t)(channel - piece->channels.begin)) * element, element);
            }
        }
    }
    memcpy(to, room, ms_length(channels) * element);
}

void ms_move(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels, const ms_constants *c)
{
    const ms_move_layer *l = layer;
    int32_t b, y, x;
    (void)c;
    for (b = 0; b < out->batch; ++b) {
        for (y = out->rows.begin; y < out->rows.end; ++y) {
            for (x = out->columns.begin; x < out->columns.end; ++x) {
                const size_t to = ms_at(out, b, y, x) + (size_t)(channels.begin - out->channels.begin);
                point(l, in, out->data + to * (size_t)l->element, b, y, x, channels);
            }
        }
    }
}
