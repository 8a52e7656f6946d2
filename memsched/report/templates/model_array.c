/* Written by memsched @version@; do not edit.
 * @file@, target @target@, SHA-256
 * @sha256@ */
#include <stddef.h>

#if defined(__cplusplus)
#define MEMSCHED_MODEL_ALIGNED alignas(16)
extern "C" {
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define MEMSCHED_MODEL_ALIGNED _Alignas(16)
#else
#define MEMSCHED_MODEL_ALIGNED __attribute__((aligned(16)))
#endif

extern const unsigned char @name@[@bytes@];
extern const size_t @name@_bytes;

MEMSCHED_MODEL_ALIGNED const unsigned char @name@[@bytes@] = {
@data@
};
const size_t @name@_bytes = @bytes@u;

#if defined(__cplusplus)
}
#endif
