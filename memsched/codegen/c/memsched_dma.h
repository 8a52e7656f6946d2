/* What the chip's owner fills in: moving bytes between DRAM and on-chip memory.
 *
 * A transfer is `outer` times `inner` runs of `bytes` bytes each; the strides say how far the next run begins behind
 * the last one, on either side. Transfers are started in the order in which they are needed, and may overlap each other
 * and computation. Runs never overlap on the side that is written.
 */
#ifndef MEMSCHED_DMA_H
#define MEMSCHED_DMA_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint8_t *chip;
    size_t bytes;
    size_t inner;
    size_t outer;
    size_t chip_inner;
    size_t chip_outer;
    size_t dram_inner;
    size_t dram_outer;
} ms_transfer;

/* Start a transfer from `dram` to on-chip memory, and return at once; `tag` names it for dma_wait. */
void dma_load(unsigned tag, const ms_transfer *transfer, const uint8_t *dram);

/* Start a transfer from on-chip memory to `dram`, and return at once. */
void dma_store(unsigned tag, const ms_transfer *transfer, uint8_t *dram);

/* Return when every transfer with this tag is finished; at once where there is none. */
void dma_wait(unsigned tag);

#endif
