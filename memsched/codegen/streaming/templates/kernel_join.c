
static void join(const layer_t *l, const int8_t *one, const int8_t *other, int8_t *to)
{
    memcpy(to, one, l->channels);
    memcpy(to + l->channels, other, l->other_channels);
}
