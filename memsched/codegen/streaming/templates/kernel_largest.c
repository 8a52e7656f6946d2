
static void largest(const layer_t *l, const state_t *s, const int8_t *from, int8_t *to)
{
    int32_t c, x, y;
    window_t w;
    open_window(l, s, from, &w);
    for (c = 0; c < l->made; c++) {
        int32_t found = -128;
        for (y = 0; y < w.rows; y++) {
            const int8_t *values = w.part[y];
            for (x = 0; x < w.columns; x++, values += w.step) {
                if (x == w.pixels[y]) values = w.rest[y];
                if (values[c] > found) found = values[c];
            }
        }
        to[c] = (int8_t)limited(found, l->low, l->high);
    }
}
