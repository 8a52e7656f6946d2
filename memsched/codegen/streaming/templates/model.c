/* @model@, streamed: each layer makes one pixel at a time, and maps are rings of the pixels that are still needed.
 * Made by memsched @version@. Outputs are those of TensorFlow Lite's reference kernels, bit by bit.
 */
#include "model.h"

#include <string.h>

#define ARENA_BYTES @arena_bytes@
#define LONGEST_SEGMENT @longest@
#define OUTPUTS @outputs@
#define ROWS_OF_WINDOW @rows_of_window@

typedef @place@ place_t; /* a row or a column */
typedef @pixel@ pixel_t; /* the number of a pixel */

enum { @kinds@ };

