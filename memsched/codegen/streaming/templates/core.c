/* The schedule: of the layers of a segment, the deepest one that can run makes one pixel. */

typedef struct {
    uint8_t kind, from_space, other_space, to_space;
    int16_t source, other, after;          /* layers of the segment, or COMPLETE, PUSHED, NONE */
    uint16_t reader;                       /* the last layer that waits for it, or itself */
    uint8_t kernel_y, kernel_x, stride_y, stride_x, dilation_y, dilation_x, divide_y, divide_x;
    int16_t top, left;                     /* output 0 begins so far before the map */
    place_t plane_y, plane_x;              /* rows and columns that are read */
    place_t steps_y, steps_x;              /* rows and columns of steps */
    uint16_t channels, other_channels, made; /* values of a pixel: read, read as well, written */
    uint32_t from, other_from, to;
    pixel_t ring, other_ring, to_ring;     /* pixels that are kept */
    pixel_t late, other_late;              /* a source is complete so many steps after its first pixel */
    uint8_t other_step, to_step;           /* pixels of a step; 0 where all steps have the same */
    int16_t zero, to_zero, low, high;
    const int8_t *weights;
    const int32_t *bias, *multipliers;
    const int8_t *shifts;
} layer_t;

typedef struct {
    pixel_t slot, other_slot, to_slot; /* pixels of the rings */
    place_t y, x;
} state_t;

typedef struct {
    uint16_t first, last, reader; /* layers, and the last that waits for the input, counted from the first */
} segment_t;

enum { COMPLETE = -1, PUSHED = -2, NONE = -3 };
enum { IN_ARENA, IN_INPUT, IN_FLASH, IN_OUTPUT };

static int8_t arena[ARENA_BYTES];
static state_t state[LONGEST_SEGMENT];

typedef struct {
    const int8_t *input;
    int8_t *output[OUTPUTS];
} caller_t;

static int32_t limited(int32_t value, int32_t low, int32_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Fixed-point arithmetic as TensorFlow Lite's reference kernels have it. */
static int32_t high_product(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}

static int32_t rounded_shift(int32_t value, int32_t bits)
{
    const int32_t mask = (int32_t)((1u << bits) - 1), rest = value & mask;
    return (value >> bits) + (rest > (mask >> 1) + (value < 0));
}

static int32_t scaled(int32_t value, int32_t multiplier, int32_t shift)
{
    return shift > 0 ? high_product((int32_t)((uint32_t)value << shift), multiplier)
                     : rounded_shift(high_product(value, multiplier), -shift);
}

static const int8_t *read_at(const caller_t *caller, const layer_t *l, uint8_t space, uint32_t from)
{
    return space == IN_ARENA ? arena + from : space == IN_INPUT ? caller->input
           : space == IN_FLASH ? l->weights : caller->output[space - IN_OUTPUT];
}

static int8_t *write_at(const caller_t *caller, uint8_t space, uint32_t to)
{
    return space == IN_ARENA ? arena + to : caller->output[space - IN_OUTPUT];
}

/* The first place inside the map that output `at` of an axis reads. */
static int32_t first_place(int32_t at, int32_t stride, int32_t before, int32_t dilation, int32_t divide, int32_t length)
{
    int32_t place = at * stride - before;
    while (place < 0) place += dilation;
    if (divide > 1) place /= divide;
    return place < length ? place : length - 1;
}

static int32_t last_place(int32_t at, int32_t stride, int32_t before, int32_t reach, int32_t divide, int32_t length)
{
    int32_t place = at * stride - before + reach;
    if (place < 0) place = 0;
    if (divide > 1) place /= divide;
    return place < length ? place : length - 1;
}

static int32_t first_pixel(const layer_t *l, const state_t *s)
{
    return first_place(s->y, l->stride_y, l->top, l->dilation_y, l->divide_y, l->plane_y) * l->plane_x +
           first_place(s->x, l->stride_x, l->left, l->dilation_x, l->divide_x, l->plane_x);
}

static int32_t last_pixel(const layer_t *l, const state_t *s)
{
    return last_place(s->y, l->stride_y, l->top, (l->kernel_y - 1) * l->dilation_y, l->divide_y, l->plane_y) *
               l->plane_x +
           last_place(s->x, l->stride_x, l->left, (l->kernel_x - 1) * l->dilation_x, l->divide_x, l->plane_x);
}

/* A place of a ring, so many pixels further, or back. */
static pixel_t turned(int32_t slot, int32_t pixels, int32_t ring)
{
    slot += pixels;
    while (slot >= ring) slot -= ring;
    while (slot < 0) slot += ring;
    return (pixel_t)slot;
}
