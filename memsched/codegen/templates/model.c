/* Written by memsched @version@; do not edit. C99. @model@ */
#include "model.h"

#include "memsched_kernels.h"

float ms_point_f32[@points@];
int8_t ms_point_i8[@points@];

/* Layers. */
@layers@
/* Which parts of an axis the pieces of a tensor have. */
@ranges@

/* Groups. */
@groups@

@planned@

static ms_leaving leaving[@stores@];

void model_run_group(int group, const uint8_t *const inputs[MODEL_INPUTS], uint8_t *const outputs[MODEL_OUTPUTS],
                     const uint8_t *weights, uint8_t *arena, uint8_t *chip, void (*computes)(void))
{
    ms_memory memory;
    memory.tensors = tensors;
    memory.leaving = leaving;
    memory.weights = weights;
    memory.chip = chip;
    memory.arena = arena;
    memory.inputs = inputs;
    memory.outputs = outputs;
    memory.computes = computes;
    ms_run_group(&groups[group], &memory);
}

void model_run(const uint8_t *const inputs[MODEL_INPUTS], uint8_t *const outputs[MODEL_OUTPUTS],
               const uint8_t *weights, uint8_t *arena, uint8_t *chip, void (*computes)(void))
{
    int group;
    for (group = 0; group < MODEL_GROUPS; ++group) {
        model_run_group(group, inputs, outputs, weights, arena, chip, computes);
    }
}
