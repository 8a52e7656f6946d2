/* Groups of layers that stay on chip, piece by piece: the tables that a model consists of, and what runs them. C99. */
#ifndef MEMSCHED_ONCHIP_H
#define MEMSCHED_ONCHIP_H

#include <stddef.h>
#include <stdint.h>

#include "memsched_dma.h"

typedef struct {
    int32_t begin;
    int32_t end;
} ms_range;

/* A whole tensor: batch, rows, columns, channels. One without a plane has all its elements in the channels. */
typedef struct {
    int32_t batch;
    int32_t rows;
    int32_t columns;
    int32_t channels;
} ms_shape;

/* What of a tensor lies on chip, in the order batch, rows, columns, channels. */
typedef struct {
    uint8_t *data;
    int32_t batch;
    ms_range rows;
    ms_range columns;
    ms_range channels;
} ms_piece;

/* Constants of a layer on chip: where each begins, and the output channel that the first value is of. */
typedef struct {
    const uint8_t *at[4];
    int32_t first;
} ms_constants;

/* Compute `channels` of the piece `out`, point by point in the order of the memory: all that a point reads is read
 * before it is written, as the output may lie over an input that is used up. */
typedef void (*ms_kernel)(const void *layer, const ms_piece *in, const ms_piece *out, ms_range channels,
                          const ms_constants *constants);

/* Where a tensor lies in DRAM. */
typedef enum { MS_ARENA, MS_INPUT, MS_OUTPUT } ms_space;

typedef struct {
    ms_shape shape;
    int32_t element;
    ms_space space;
    size_t place; /* bytes from the arena's begin, or the number of the input or output */
} ms_tensor;

/* When a load takes place, beside the first piece. */
typedef enum {
    MS_EVERY_PIECE,
    MS_NEW_CHANNELS, /* at the first piece of the plane of each piece of the channels */
    MS_NEW_PLANE     /* at the first piece of the channels of each piece of the plane */
} ms_when;

/* A tensor on chip. An axis that is not cut has one range for all pieces. */
typedef struct {
    int32_t tensor;
    size_t offset[2]; /* in turn, where there is room for two */
    const ms_range *rows;
    const ms_range *columns;
    const ms_range *channels;
    int32_t row_pieces;
    int32_t column_pieces;
    int32_t channel_pieces;
    int32_t added_up; /* channels are taken in turn in every piece, in either place, and added up by the first step */
} ms_buffer;

/* Constants: per filter so many bytes of each part, one part behind the other. */
typedef struct {
    size_t dram[4];
    size_t bytes[4]; /* of one filter; of all where `filters` is 1 */
    int32_t parts;
    int32_t filters;
    size_t offset[2];
    int32_t slice;     /* filters on chip at a time in one place; 0: all of the piece */
    int32_t places;    /* 2 where one slice is loaded while another is in use */
    size_t each;       /* bytes of one filter for one input channel where parts of these are added up; otherwise 0 */
    size_t beside;     /* on chip: where the parts behind the first lie then */
} ms_weights;

/* A load: of buffer `what`, or of the weights of step `step`. It is started behind step `issue` (-1: before the first)
 * of the piece before, where `ahead`, or of its own. */
typedef struct {
    int32_t what; /* -1: weights */
    int32_t step;
    int32_t issue;
    int32_t ahead;
    ms_when when;
    int32_t kept_rows; /* whether rows that the piece before had stay on chip */
} ms_load;

typedef struct {
    int32_t what;
    int32_t step;
    const ms_range *rows; /* what is stored of each piece */
    const ms_range *columns;
    const ms_range *channels;
} ms_store;

typedef struct {
    ms_kernel kernel;
    const void *layer;
    int32_t reads[8];
    int32_t read_count;
    int32_t made;
    const ms_weights *weights; /* null: none */
} ms_step;

typedef struct {
    int32_t row_pieces;
    int32_t column_pieces;
    int32_t channel_pieces;
    int32_t channels_outermost;
    int32_t front; /* steps before it run at the first piece of the channels only, for all of these */
    const ms_buffer *buffers;
    const ms_step *steps;
    int32_t step_count;
    const ms_load *loads;
    int32_t load_count;
    const ms_store *stores;
    int32_t store_count;
} ms_group;

/* Bytes on chip that are on their way to DRAM. */
typedef struct {
    const uint8_t *begin;
    const uint8_t *end;
} ms_leaving;

typedef struct {
    const ms_tensor *tensors;
    ms_leaving *leaving; /* for as many stores as any group has */
    const uint8_t *weights;
    uint8_t *chip;
    uint8_t *arena;
    const uint8_t *const *inputs;
    uint8_t *const *outputs;
    void (*computes)(void); /* told before each layer of each piece; may be null */
} ms_memory;

/* Run one group; on return all transfers are finished. */
void ms_run_group(const ms_group *group, const ms_memory *memory);

#endif
