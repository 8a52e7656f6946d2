
/* low: the value of what lies outside; zero: the first value of a pixel that is copied. */
static void copy(const layer_t *l, const state_t *s, const int8_t *from, int8_t *to)
{
    const int32_t y = s->y * l->stride_y - l->top, x = s->x * l->stride_x - l->left;
    const int outside = y < 0 || x < 0 || y >= l->plane_y * l->divide_y || x >= l->plane_x * l->divide_x;
    if (outside) {
        memset(to, l->low, l->made);
    } else {
        memcpy(to, from + s->slot * l->channels + l->zero, l->made);
    }
}
