
static void table(const layer_t *l, const int8_t *from, int8_t *to)
{
    int32_t c;
    for (c = 0; c < l->made; c++) to[c] = l->weights[from[c] + 128];
}
