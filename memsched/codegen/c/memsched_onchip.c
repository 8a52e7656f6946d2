#include "memsched_onchip.h"

#include <string.h>

/* The place of a piece on each axis, and its number. */
typedef struct {
    int32_t row;
    int32_t column;
    int32_t channel;
    int32_t number;
    int32_t part; /* of the input channels, where these are added up */
} place_of_piece;

typedef struct {
    const ms_group *group;
    const ms_memory *memory;
    ms_leaving *stores;
} run;

/* Loads have two tags each, one for either place. */
static unsigned store_tag(const ms_group *g, int32_t number)
{
    return 2u * (unsigned)g->load_count + (unsigned)number;
}

static place_of_piece piece_at(const ms_group *g, int32_t number)
{
    place_of_piece found;
    const int32_t planes = g->row_pieces * g->column_pieces;
    const int32_t plane = g->channels_outermost ? number % planes : number / g->channel_pieces;
    found.channel = g->channels_outermost ? number / planes : number % g->channel_pieces;
    found.row = plane / g->column_pieces;
    found.column = plane % g->column_pieces;
    found.number = number;
    found.part = 0;
    return found;
}

static ms_range range_of(const ms_range *ranges, int32_t pieces, int32_t piece)
{
    return ranges[pieces > 1 ? piece : 0];
}

static ms_piece piece_of(const run *r, int32_t buffer, place_of_piece at)
{
    const ms_buffer *b = &r->group->buffers[buffer];
    ms_piece found;
    found.batch = r->memory->tensors[b->tensor].shape.batch;
    found.rows = range_of(b->rows, b->row_pieces, at.row);
    found.columns = range_of(b->columns, b->column_pieces, at.column);
    found.channels = range_of(b->channels, b->channel_pieces, b->added_up ? at.part : at.channel);
    found.data = r->memory->chip + b->offset[(b->added_up ? at.part : at.number) & 1];
    return found;
}

static size_t extent(ms_range range)
{
    return (size_t)(range.end - range.begin);
}

static int is_empty(const ms_piece *piece)
{
    return piece->rows.end <= piece->rows.begin || piece->columns.end <= piece->columns.begin ||
           piece->channels.end <= piece->channels.begin;
}

static size_t bytes_of(const ms_piece *piece, size_t element)
{
    return (size_t)piece->batch * extent(piece->rows) * extent(piece->columns) * extent(piece->channels) * element;
}

/* Wait for the stores that read bytes [begin, begin + bytes), which are to be written. */
static void claim(run *r, const uint8_t *begin, size_t bytes)
{
    int32_t at;
    for (at = 0; at < r->group->store_count; ++at) {
        ms_leaving *one = &r->stores[at];
        if (one->begin < one->end && begin < one->end && one->begin < begin + bytes) {
            dma_wait(store_tag(r->group, at));
            one->begin = one->end = NULL;
        }
    }
}

static const uint8_t *source_of(const ms_memory *m, const ms_tensor *t)
{
    if (t->space == MS_INPUT) {
        return m->inputs[t->place];
    }
    return t->space == MS_OUTPUT ? m->outputs[t->place] : m->arena + t->place;
}

/* Describe the transfer of rows, columns and channels `part` of `piece`, one plane of the batch. */
static ms_transfer transfer_of(const ms_piece *piece, const ms_piece *part, const ms_tensor *t, int32_t batch,
                               size_t *dram)
{
    const size_t element = (size_t)t->element;
    const size_t wide = extent(piece->columns), deep = extent(piece->channels);
    const size_t row = (size_t)t->shape.columns * (size_t)t->shape.channels, rows = extent(piece->rows);
    const size_t top = (size_t)(part->rows.begin - piece->rows.begin);
    const size_t left = (size_t)(part->columns.begin - piece->columns.begin);
    const size_t front = (size_t)(part->channels.begin - piece->channels.begin);
    ms_transfer found;
    found.chip = piece->data + ((((size_t)batch * rows + top) * wide + left) * deep + front) * element;
    found.bytes = extent(part->channels) * element;
    found.inner = extent(part->columns);
    found.outer = extent(part->rows);
    found.chip_inner = deep * element;
    found.chip_outer = wide * deep * element;
    found.dram_inner = (size_t)t->shape.channels * element;
    found.dram_outer = row * element;
    *dram = (((size_t)batch * (size_t)t->shape.rows + (size_t)part->rows.begin) * row +
             (size_t)part->columns.begin * (size_t)t->shape.channels + (size_t)part->channels.begin) *
            element;
    /* Runs that lie behind each other on both sides are one. */
    if (found.chip_inner == found.bytes && found.dram_inner == found.bytes) {
        found.bytes *= found.inner;
        found.inner = 1;
    }
    if (found.inner == 1 && found.chip_outer == found.bytes && found.dram_outer == found.bytes) {
        found.bytes *= found.outer;
        found.outer = 1;
    }
    return found;
}

static void load_buffer(run *r, int32_t number, place_of_piece at)
{
    const ms_load *l = &r->group->loads[number];
    const ms_buffer *b = &r->group->buffers[l->what];
    const ms_tensor *t = &r->memory->tensors[b->tensor];
    const ms_piece whole = piece_of(r, l->what, at);
    const unsigned tag = 2u * (unsigned)number + (unsigned)((b->added_up ? at.part : at.number) & 1);
    ms_piece part = whole;
    int32_t batch;
    if (is_empty(&whole)) {
        return;
    }
    claim(r, whole.data, bytes_of(&whole, (size_t)t->element));
    if (l->kept_rows && at.row > 0) {
        /* What the piece above has of this one moves to the top, and only the rest is loaded. */
        const ms_range before = range_of(b->rows, b->row_pieces, at.row - 1);
        const size_t row = extent(whole.columns) * extent(whole.channels) * (size_t)t->element;
        if (before.end > whole.rows.begin) {
            const size_t kept = (size_t)(before.end - whole.rows.begin);
            memmove(whole.data, whole.data + (size_t)(whole.rows.begin - before.begin) * row, kept * row);
            part.rows.begin = before.end;
            if (part.rows.begin >= part.rows.end) {
                return;
            }
        }
    }
    for (batch = 0; batch < whole.batch; ++batch) {
        size_t dram;
        const ms_transfer found = transfer_of(&whole, &part, t, batch, &dram);
        dma_load(tag, &found, source_of(r->memory, t) + dram);
    }
}

/* The filters of weights `w` that a piece with these channels needs. */
static ms_range filters_of(const ms_weights *w, ms_range channels)
{
    const ms_range all = {0, 1};
    return w->filters > 1 ? channels : all;
}

static void load_weights(run *r, int32_t number, const ms_weights *w, ms_range filters, int32_t place)
{
    const unsigned tag = 2u * (unsigned)number + (unsigned)place;
    size_t behind = 0;
    int32_t part;
    for (part = 0; part < w->parts; ++part) {
        ms_transfer t;
        t.bytes = extent(filters) * w->bytes[part];
        t.chip = r->memory->chip + w->offset[place] + behind;
        t.inner = t.outer = 1;
        t.chip_inner = t.chip_outer = t.dram_inner = t.dram_outer = t.bytes;
        claim(r, t.chip, t.bytes);
        dma_load(tag, &t, r->memory->weights + w->dram[part] + (size_t)filters.begin * w->bytes[part]);
        behind += t.bytes;
    }
}

/* Weights of these filters for part `part` of the input channels; with the first part, the other constants as well. */
static void load_addend(run *r, int32_t number, const ms_weights *w, ms_range filters, const ms_buffer *in, int32_t part)
{
    const unsigned tag = 2u * (unsigned)number + (unsigned)(part & 1);
    const ms_range channels = in->channels[part];
    size_t behind = 0;
    int32_t at;
    for (at = part > 0 ? 0 : w->parts - 1; at >= 0; --at) {
        ms_transfer t;
        size_t dram = w->dram[at];
        if (at == 0) {
            t.bytes = extent(filters) * extent(channels) * w->each;
            t.chip = r->memory->chip + w->offset[part & 1];
            dram += ((size_t)w->filters * (size_t)channels.begin + (size_t)filters.begin * extent(channels)) * w->each;
        } else {
            t.bytes = extent(filters) * w->bytes[at];
            t.chip = r->memory->chip + w->beside + behind;
            dram += (size_t)filters.begin * w->bytes[at];
            behind += t.bytes;
        }
        t.inner = t.outer = 1;
        t.chip_inner = t.chip_outer = t.dram_inner = t.dram_outer = t.bytes;
        claim(r, t.chip, t.bytes);
        dma_load(tag, &t, r->memory->weights + dram);
    }
}

static ms_constants constants_at(const run *r, const ms_weights *w, ms_range filters, int32_t place)
{
    ms_constants found;
    size_t behind = 0;
    int32_t part;
    memset(&found, 0, sizeof(found));
    found.first = w->filters > 1 ? filters.begin : 0;
    for (part = 0; part < w->parts; ++part) {
        found.at[part] = r->memory->chip + w->offset[place] + behind;
        behind += extent(filters) * w->bytes[part];
    }
    return found;
}

/* The first filters of a piece: all, or as many as fit. */
static ms_range first_slice(const ms_weights *w, ms_range filters)
{
    if (w->slice && filters.end > filters.begin + w->slice) {
        filters.end = filters.begin + w->slice;
    }
    return filters;
}

static int is_loaded(const ms_group *g, const ms_load *l, place_of_piece at)
{
    if (l->when == MS_NEW_CHANNELS) {
        return at.row == 0 && at.column == 0;
    }
    return l->when == MS_EVERY_PIECE || at.channel == 0 || g->channel_pieces == 1;
}

static ms_range channels_made(const run *r, const ms_step *step, place_of_piece at)
{
    const ms_buffer *b = &r->group->buffers[step->made];
    return range_of(b->channels, b->channel_pieces, at.channel);
}

static void issue(run *r, int32_t number, int32_t piece)
{
    const ms_load *l = &r->group->loads[number];
    const place_of_piece at = piece_at(r->group, piece);
    if (!is_loaded(r->group, l, at)) {
        return;
    }
    if (l->what >= 0) {
        load_buffer(r, number, at);
    } else {
        const ms_step *step = &r->group->steps[l->step];
        const ms_piece made = piece_of(r, step->made, at);
        if (l->when != MS_EVERY_PIECE || !is_empty(&made)) {
            const ms_range filters = filters_of(step->weights, channels_made(r, step, at));
            if (step->weights->each > 0) {
                load_addend(r, number, step->weights, filters, &r->group->buffers[step->reads[0]], 0);
            } else {
                load_weights(r, number, step->weights, first_slice(step->weights, filters), 0);
            }
        }
    }
}

/* Add up the products of one part of the input channels after another; the next is loaded meanwhile. */
static void add_up(run *r, const ms_step *step, place_of_piece at, const ms_piece *out, int32_t weights_load)
{
    const ms_weights *w = step->weights;
    const ms_buffer *b = &r->group->buffers[step->reads[0]];
    ms_constants constants;
    int32_t number = 0;
    while (r->group->loads[number].what != step->reads[0]) {
        ++number;
    }
    memset(&constants, 0, sizeof(constants));
    constants.first = out->channels.begin;
    constants.at[1] = r->memory->chip + w->beside;
    for (at.part = 0; at.part < b->channel_pieces; ++at.part) {
        const unsigned place = (unsigned)(at.part & 1);
        place_of_piece next = at;
        ms_piece in;
        ++next.part;
        dma_wait(2u * (unsigned)number + place);
        dma_wait(2u * (unsigned)weights_load + place);
        if (next.part < b->channel_pieces) {
            load_buffer(r, number, next);
            load_addend(r, weights_load, w, out->channels, b, next.part);
        }
        if (r->memory->computes != NULL) {
            r->memory->computes();
        }
        in = piece_of(r, step->reads[0], at);
        constants.at[0] = r->memory->chip + w->offset[place];
        step->kernel(step->layer, &in, out, out->channels, &constants);
    }
}

static void run_step(run *r, int32_t number, place_of_piece at, int32_t weights_load)
{
    const ms_step *step = &r->group->steps[number];
    const ms_weights *w = step->weights;
    const ms_piece out = piece_of(r, step->made, at);
    ms_piece in[8];
    ms_range rest;
    int32_t read, place = 0;
    if (is_empty(&out)) {
        return;
    }
    if (w != NULL && w->each > 0) {
        claim(r, out.data, bytes_of(&out, (size_t)r->memory->tensors[r->group->buffers[step->made].tensor].element));
        add_up(r, step, at, &out, weights_load);
        return;
    }
    for (read = 0; read < step->read_count; ++read) {
        in[read] = piece_of(r, step->reads[read], at);
    }
    claim(r, out.data, bytes_of(&out, (size_t)r->memory->tensors[r->group->buffers[step->made].tensor].element));
    if (r->memory->computes != NULL) {
        r->memory->computes();
    }
    if (w == NULL || w->slice == 0) {
        ms_constants constants;
        memset(&constants, 0, sizeof(constants));
        if (w != NULL) {
            constants = constants_at(r, w, filters_of(w, out.channels), 0);
        }
        step->kernel(step->layer, in, &out, out.channels, &constants);
        return;
    }
    rest = out.channels;
    while (rest.begin < rest.end) {
        const ms_range now = first_slice(w, rest);
        const ms_constants constants = constants_at(r, w, now, place);
        ms_range next = rest;
        next.begin = now.end;
        dma_wait(2u * (unsigned)weights_load + (unsigned)place);
        if (w->places > 1 && next.begin < next.end) {
            load_weights(r, weights_load, w, first_slice(w, next), 1 - place);
            if (r->memory->computes != NULL) {
                r->memory->computes();
            }
        }
        step->kernel(step->layer, in, &out, now, &constants);
        if (w->places == 1 && next.begin < next.end) {
            load_weights(r, weights_load, w, first_slice(w, next), 0);
        }
        place = w->places > 1 ? 1 - place : 0;
        rest = next;
    }
}

static ms_range both(ms_range one, ms_range other)
{
    ms_range found;
    found.begin = one.begin > other.begin ? one.begin : other.begin;
    found.end = one.end < other.end ? one.end : other.end;
    return found;
}

static void store(run *r, int32_t number, place_of_piece at)
{
    const ms_store *s = &r->group->stores[number];
    const ms_buffer *b = &r->group->buffers[s->what];
    const ms_tensor *t = &r->memory->tensors[b->tensor];
    const ms_piece whole = piece_of(r, s->what, at);
    ms_piece part = whole;
    int32_t batch;
    part.rows = both(whole.rows, s->rows[b->row_pieces > 1 ? at.row : 0]);
    part.columns = both(whole.columns, s->columns[b->column_pieces > 1 ? at.column : 0]);
    part.channels = both(whole.channels, s->channels[b->channel_pieces > 1 ? at.channel : 0]);
    if (is_empty(&part)) {
        return;
    }
    for (batch = 0; batch < whole.batch; ++batch) {
        size_t dram;
        const ms_transfer found = transfer_of(&whole, &part, t, batch, &dram);
        uint8_t *to = t->space == MS_OUTPUT ? r->memory->outputs[t->place] : r->memory->arena + t->place;
        dma_store(store_tag(r->group, number), &found, to + dram);
    }
    r->stores[number].begin = whole.data;
    r->stores[number].end = whole.data + bytes_of(&whole, (size_t)t->element);
}

void ms_run_group(const ms_group *group, const ms_memory *memory)
{
    const int32_t pieces = group->row_pieces * group->column_pieces * group->channel_pieces;
    int32_t piece, step, at;
    run r;
    r.group = group;
    r.memory = memory;
    r.stores = memory->leaving;
    memset(r.stores, 0, (size_t)group->store_count * sizeof(*r.stores));
    for (at = 0; at < group->load_count; ++at) {
        if (group->loads[at].ahead) {
            issue(&r, at, 0);
        }
    }
    for (piece = 0; piece < pieces; ++piece) {
        const place_of_piece now = piece_at(group, piece);
        for (step = -1; step < group->step_count; ++step) {
            if (step >= group->front || (step >= 0 && now.channel == 0)) {
                int32_t weights_load = -1;
                for (at = 0; at < group->load_count; ++at) {
                    if (group->loads[at].step == step) {
                        dma_wait(2u * (unsigned)at + (group->loads[at].what >= 0 ? (unsigned)(piece & 1) : 0u));
                        weights_load = group->loads[at].what < 0 ? at : weights_load;
                    }
                }
                run_step(&r, step, now, weights_load);
                for (at = 0; at < group->store_count; ++at) {
                    if (group->stores[at].step == step) {
                        store(&r, at, now);
                    }
                }
            }
            for (at = 0; at < group->load_count; ++at) {
                if (group->loads[at].issue == step) {
                    if (!group->loads[at].ahead) {
                        issue(&r, at, piece);
                    } else if (piece + 1 < pieces) {
                        issue(&r, at, piece + 1);
                    }
                }
            }
        }
    }
    for (at = 0; at < group->store_count; ++at) {
        dma_wait(store_tag(group, at));
    }
}
