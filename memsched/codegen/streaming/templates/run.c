
/* Whether a pixel of a source was made, or was pushed. */
static int is_there(const layer_t *layers, int32_t source, int32_t pixel, int32_t pushed)
{
    if (source == COMPLETE) return 1;
    if (source == PUSHED) return pushed > pixel;
    return state[source].y * layers[source].steps_x + state[source].x > pixel;
}

static int can_run(const layer_t *layers, int32_t number, int32_t pushed)
{
    const layer_t *l = layers + number;
    const state_t *s = state + number;
    const int32_t pixel = s->y * l->steps_x + s->x;
    return s->y < l->steps_y && is_there(layers, l->source, last_pixel(l, s) + l->late, pushed) &&
           (l->other == NONE || is_there(layers, l->other, pixel * l->other_step + l->other_late, pushed)) &&
           (l->after == NONE || is_there(layers, l->after, pixel, pushed));
}

/* Run what can run. Behind `number` nothing can, and a step makes only what waits for it ready. */
static void run(const caller_t *caller, const layer_t *layers, int32_t number, int32_t pushed)
{
    while (number >= 0) {
        if (can_run(layers, number, pushed)) {
            step(caller, layers + number, state + number);
            number = layers[number].reader;
        } else {
            number--;
        }
    }
}

static void begin(const layer_t *layers, int32_t count)
{
    int32_t number;
    (void)layers;
    memset(state, 0, sizeof state);
    for (number = 0; number < count; number++) {
        state[number].slot = turned(0, first_pixel(layers + number, state + number), layers[number].ring);
    }
}
