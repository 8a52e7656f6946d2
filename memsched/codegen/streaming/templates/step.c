@other@
/* Make a layer's next pixel. */
static void step(const caller_t *caller, const layer_t *l, state_t *s)
{
    const int32_t before = first_pixel(l, s);
    const int8_t *from = read_at(caller, l, l->from_space, l->from);
    int8_t *to = write_at(caller, l->to_space, l->to) + s->to_slot * l->made;
    switch (l->kind) {
@cases@
    }
    if (++s->x == l->steps_x) {
        s->x = 0;
        s->y++;
    }
    s->slot = turned(s->slot, first_pixel(l, s) - before, l->ring);
    s->other_slot = turned(s->other_slot, l->other_step, l->other_ring);
    s->to_slot = turned(s->to_slot, l->to_step, l->to_ring);
}
