/* Written by memsched @version@; do not edit. C99.
 *
 * @model@ on target @target@, in @groups@ groups of layers that stay
 * on chip.
 * Feature maps lie in memory as rows, columns, channels, inputs and outputs included.
 */
#ifndef MEMSCHED_MODEL_H
#define MEMSCHED_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* On-chip memory that the plan uses, of what the target has. */
#define MODEL_CHIP_BYTES @chip_bytes@u /* of @capacity@ */
/* DRAM for what goes from group to group. */
#define MODEL_ARENA_BYTES @arena_bytes@u
/* What @weights@ holds; it is read through DMA only. */
#define MODEL_WEIGHTS_BYTES @weights_bytes@u
/* What the plan loads from DRAM and stores there in one inference. */
#define MODEL_LOADED_BYTES @loaded@ull
#define MODEL_STORED_BYTES @stored@ull
#define MODEL_GROUPS @groups@
#define MODEL_INPUTS @inputs@
#define MODEL_OUTPUTS @outputs@
@ends@
#define MODEL_INPUT_SIZES @input_sizes@
#define MODEL_OUTPUT_SIZES @output_sizes@

/* Bytes that each group loads and stores, as planned. */
extern const uint64_t model_group_bytes[MODEL_GROUPS][2];

/* Run one inference. The memories are the caller's; none needs to be set before.
 *
 * chip: MODEL_CHIP_BYTES of on-chip memory. arena: MODEL_ARENA_BYTES of DRAM.
 * computes: called before each layer of each piece; may be null. */
void model_run(const uint8_t *const inputs[MODEL_INPUTS], uint8_t *const outputs[MODEL_OUTPUTS],
               const uint8_t *weights, uint8_t *arena, uint8_t *chip, void (*computes)(void));

/* Run one group of it, in order from 0; for the rest as above. */
void model_run_group(int group, const uint8_t *const inputs[MODEL_INPUTS],
                     uint8_t *const outputs[MODEL_OUTPUTS], const uint8_t *weights, uint8_t *arena,
                     uint8_t *chip, void (*computes)(void));

#endif
