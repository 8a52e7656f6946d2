
/* The pixels of a window that lie inside the map: in each row one part, or two where the ring begins again. */
typedef struct {
    const int8_t *part[ROWS_OF_WINDOW], *rest[ROWS_OF_WINDOW];
    uint8_t pixels[ROWS_OF_WINDOW]; /* of the first part */
    uint8_t rows, columns, y, x;    /* how many there are, and the first tap */
    int32_t step;                   /* from one pixel to the next one */
} window_t;

enum { TOGETHER = 8 }; /* values of a pixel that are summed up at a time */

static void open_window(const layer_t *l, const state_t *s, const int8_t *from, window_t *w)
{
    const int32_t top = s->y * l->stride_y - l->top, left = s->x * l->stride_x - l->left;
    int32_t y = 0, x = 0, end = l->kernel_x, slot = s->slot;
    while (top + y * l->dilation_y < 0) y++;
    while (left + x * l->dilation_x < 0) x++;
    while (left + (end - 1) * l->dilation_x >= l->plane_x) end--;
    w->y = (uint8_t)y;
    w->x = (uint8_t)x;
    w->columns = (uint8_t)(end - x);
    w->step = l->dilation_x * l->channels;
    for (w->rows = 0; y < l->kernel_y && top + y * l->dilation_y < l->plane_y; y++, w->rows++) {
        int32_t here = l->ring - slot;
        if (l->dilation_x > 1) here = (here + l->dilation_x - 1) / l->dilation_x;
        if (here > w->columns) here = w->columns;
        w->part[w->rows] = from + slot * l->channels;
        w->rest[w->rows] = from + (slot + here * l->dilation_x - l->ring) * l->channels;
        w->pixels[w->rows] = (uint8_t)here;
        slot = turned(slot, l->dilation_y * l->plane_x, l->ring);
    }
}
