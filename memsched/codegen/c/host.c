/* One inference on a computer: host WEIGHTS INPUT... OUTPUT..., each a file of bytes. What was moved is printed, and
 * compared with the plan: 0 where every group moved what was planned. "-late" before WEIGHTS moves the bytes of each
 * transfer when it is waited for, and not when it is started. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dma_host.h"
#include "model.h"

static uint8_t *room(size_t bytes)
{
    uint8_t *found = malloc(bytes + 1);
    if (found == NULL) {
        fprintf(stderr, "no memory for %lu bytes\n", (unsigned long)bytes);
        exit(2);
    }
    memset(found, 0xa5, bytes + 1);
    return found;
}

static void read_file(const char *path, uint8_t *to, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(to, 1, bytes, file) != bytes || fgetc(file) != EOF) {
        fprintf(stderr, "%s has not %lu bytes\n", path, (unsigned long)bytes);
        exit(2);
    }
    fclose(file);
}

static void write_file(const char *path, const uint8_t *from, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(from, 1, bytes, file) != bytes || fclose(file) != 0) {
        fprintf(stderr, "%s cannot be written\n", path);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static const size_t input_bytes[] = MODEL_INPUT_SIZES, output_bytes[] = MODEL_OUTPUT_SIZES;
    uint8_t *inputs[MODEL_INPUTS], *outputs[MODEL_OUTPUTS], *weights, *arena, *chip;
    const uint8_t *given[MODEL_INPUTS];
    uint64_t loaded = 0, stored = 0;
    int at, wrong = 0;
    if (argc > 1 && strcmp(argv[1], "-late") == 0) {
        ms_host_late = 1;
        --argc;
        ++argv;
    }
    if (argc != 2 + MODEL_INPUTS + MODEL_OUTPUTS) {
        fprintf(stderr, "usage: host [-late] WEIGHTS and %d inputs, %d outputs\n", MODEL_INPUTS, MODEL_OUTPUTS);
        return 2;
    }
    weights = room(MODEL_WEIGHTS_BYTES);
    arena = room(MODEL_ARENA_BYTES);
    chip = room(MODEL_CHIP_BYTES);
    read_file(argv[1], weights, MODEL_WEIGHTS_BYTES);
    for (at = 0; at < MODEL_INPUTS; ++at) {
        inputs[at] = room(input_bytes[at]);
        read_file(argv[2 + at], inputs[at], input_bytes[at]);
        given[at] = inputs[at];
    }
    for (at = 0; at < MODEL_OUTPUTS; ++at) {
        outputs[at] = room(output_bytes[at]);
    }
    for (at = 0; at < MODEL_GROUPS; ++at) {
        const ms_counts before = ms_host_counts;
        model_run_group(at, given, outputs, weights, arena, chip, ms_host_computes);
        loaded = ms_host_counts.loaded - before.loaded;
        stored = ms_host_counts.stored - before.stored;
        if (loaded != model_group_bytes[at][0] || stored != model_group_bytes[at][1]) {
            printf("group %d: %llu loaded and %llu stored, not %llu and %llu\n", at, (unsigned long long)loaded,
                   (unsigned long long)stored, (unsigned long long)model_group_bytes[at][0],
                   (unsigned long long)model_group_bytes[at][1]);
            wrong = 1;
        }
    }
    for (at = 0; at < MODEL_OUTPUTS; ++at) {
        write_file(argv[2 + MODEL_INPUTS + at], outputs[at], output_bytes[at]);
    }
    if (chip[MODEL_CHIP_BYTES] != 0xa5 || arena[MODEL_ARENA_BYTES] != 0xa5 || ms_host_pending() != 0) {
        printf("memory was written beyond its end, or a transfer was not waited for\n");
        wrong = 1;
    }
    printf("loaded %llu of %llu bytes, stored %llu of %llu, in %llu transfers, %llu bytes while computing\n",
           (unsigned long long)ms_host_counts.loaded, MODEL_LOADED_BYTES, (unsigned long long)ms_host_counts.stored,
           MODEL_STORED_BYTES, (unsigned long long)(ms_host_counts.loads + ms_host_counts.stores),
           (unsigned long long)ms_host_counts.overlapped);
    for (at = 0; at < MODEL_INPUTS; ++at) {
        free(inputs[at]);
    }
    for (at = 0; at < MODEL_OUTPUTS; ++at) {
        free(outputs[at]);
    }
    free(weights);
    free(arena);
    free(chip);
    return wrong || ms_host_counts.loaded != MODEL_LOADED_BYTES || ms_host_counts.stored != MODEL_STORED_BYTES;
}
