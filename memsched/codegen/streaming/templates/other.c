
/* The pixel of the second source. */
static const int8_t *other_of(const caller_t *caller, const layer_t *l, const state_t *s)
{
    return read_at(caller, l, l->other_space, l->other_from) + s->other_slot * l->other_channels;
}
