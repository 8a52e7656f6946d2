/* @model@, streamed. Made by memsched @version@.
 *
 * No heap, no other file, no library but <string.h>: RAM is the arena and the state below, and the stack.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

#define MODEL_RAM_BYTES @ram@u     /* arena and state */
#define MODEL_ARENA_BYTES @arena@u
#define MODEL_STATE_BYTES @state@u
#define MODEL_FLASH_BYTES @flash@u /* weights and tables, without code */
#define MODEL_MACS @macs@u
#define MODEL_INPUT_BYTES @input_bytes@u /* @input_shape@ */
#define MODEL_INPUT_ROWS @input_rows@u
#define MODEL_ROW_BYTES @row_bytes@u
@output_sizes@
@scales@

#ifdef __cplusplus
extern "C" {
#endif

@interface@

#ifdef __cplusplus
}
#endif

#endif
