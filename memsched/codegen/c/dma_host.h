/* The transfers of memsched_dma.h on a computer, counted. */
#ifndef MEMSCHED_DMA_HOST_H
#define MEMSCHED_DMA_HOST_H

#include <stdint.h>

typedef struct {
    uint64_t loaded;
    uint64_t stored;
    uint64_t loads;
    uint64_t stores;
    uint64_t overlapped; /* bytes of transfers that were under way while something was computed */
} ms_counts;

extern ms_counts ms_host_counts;

/* When bytes are moved: 0 as soon as a transfer is started, 1 not before it is waited for. Both must give the same. */
extern int ms_host_late;

/* Return the transfers that were started and never waited for. */
unsigned ms_host_pending(void);

/* Tell that something is computed now. */
void ms_host_computes(void);

#endif
