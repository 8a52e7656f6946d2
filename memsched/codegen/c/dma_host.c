#include "dma_host.h"

#include <string.h>

#include "memsched_dma.h"

#define MOST_PENDING 1024

typedef struct {
    ms_transfer transfer;
    const uint8_t *from;
    uint8_t *to;
    unsigned tag;
    int computed;
} pending_transfer;

ms_counts ms_host_counts;
int ms_host_late;

static pending_transfer pending[MOST_PENDING];
static unsigned waiting;

static void move(const pending_transfer *one)
{
    const ms_transfer *t = &one->transfer;
    size_t outer, inner;
    for (outer = 0; outer < t->outer; ++outer) {
        for (inner = 0; inner < t->inner; ++inner) {
            const size_t chip = outer * t->chip_outer + inner * t->chip_inner;
            const size_t dram = outer * t->dram_outer + inner * t->dram_inner;
            if (one->to != NULL) {
                memcpy(one->to + dram, t->chip + chip, t->bytes);
            } else {
                memcpy(t->chip + chip, one->from + dram, t->bytes);
            }
        }
    }
}

static void start(unsigned tag, const ms_transfer *transfer, const uint8_t *from, uint8_t *to)
{
    pending_transfer one;
    one.transfer = *transfer;
    one.from = from;
    one.to = to;
    one.tag = tag;
    one.computed = 0;
    if (!ms_host_late || waiting == MOST_PENDING) {
        move(&one);
    }
    if (waiting < MOST_PENDING) {
        pending[waiting++] = one;
    }
}

void dma_load(unsigned tag, const ms_transfer *transfer, const uint8_t *dram)
{
    ms_host_counts.loaded += (uint64_t)transfer->bytes * transfer->inner * transfer->outer;
    ms_host_counts.loads += 1;
    start(tag, transfer, dram, NULL);
}

void dma_store(unsigned tag, const ms_transfer *transfer, uint8_t *dram)
{
    ms_host_counts.stored += (uint64_t)transfer->bytes * transfer->inner * transfer->outer;
    ms_host_counts.stores += 1;
    start(tag, transfer, NULL, dram);
}

void dma_wait(unsigned tag)
{
    unsigned kept = 0, at;
    for (at = 0; at < waiting; ++at) {
        const ms_transfer *t = &pending[at].transfer;
        if (pending[at].tag != tag) {
            pending[kept++] = pending[at];
            continue;
        }
        if (ms_host_late) {
            move(&pending[at]);
        }
        if (pending[at].computed) {
            ms_host_counts.overlapped += (uint64_t)t->bytes * t->inner * t->outer;
        }
    }
    waiting = kept;
}

unsigned ms_host_pending(void)
{
    return waiting;
}

void ms_host_computes(void)
{
    unsigned at;
    for (at = 0; at < waiting; ++at) {
        pending[at].computed = 1;
    }
}
