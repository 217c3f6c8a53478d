/* Cuts verified keys into chunks for the kernels; the same for every instruction set. */
#ifndef FSS_VERIFIED_CHUNKS_H
#define FSS_VERIFIED_CHUNKS_H

#include "verified_shape.h"

typedef void (*verified_gen_kernel)(const verified_shape *, const schedule *, const uint64_t *,
                                    const uint8_t *, uint8_t *, uint8_t *, size_t);
typedef void (*verified_kernel)(verified_evaluation *);

/* Whether `nodes` are one whole tree in preorder, with leaves of 2 to `bits` levels and as many
 * checked nodes and leaves as there is room for. */
static int whole_tree(const uint8_t *nodes, size_t count, int bits, size_t checks, size_t leaves)
{
    uint64_t left = 0; /* bit l: whether the walk is below a left child at level l */
    int level = 0;
    for (size_t i = 0; i < count; i++) {
        if (nodes[i] > LEAF || (nodes[i] == CHECKED && level < 2))
            return 0;
        if (nodes[i] != INNER && checks-- == 0)
            return 0;
        if (nodes[i] != LEAF) {
            if (level == bits)
                return 0;
            left |= (uint64_t)1 << level++;
            continue;
        }
        if (level < 2 || leaves-- == 0)
            return 0;
        while (level && !(left >> (level - 1) & 1))
            level--;
        if (level == 0)
            return i + 1 == count && checks == 0 && leaves == 0;
        left &= ~((uint64_t)1 << (level - 1)); /* on to the right sibling */
    }
    return 0;
}

static void verified_gen_rows(verified_gen_kernel kernel, const verified_shape *s,
                              const schedule *keys, const uint64_t *alphas,
                              const uint8_t *randomness, uint8_t *rows0, uint8_t *rows1,
                              size_t count)
{
    size_t done = 0;
    while (count - done >= MAX_LANES) {
        const size_t left = count - done;
        const size_t now = left < GEN_CHUNK ? left - left % MAX_LANES : GEN_CHUNK;
        kernel(s, keys, alphas + done, randomness + done * 2 * SEED_BYTES,
               rows0 + done * s->key_bytes, rows1 + done * s->key_bytes, now);
        done += now;
    }
    if (done == count)
        return;
    /* Some keys are left: run them beside dummies. */
    uint8_t scratch[2 * MAX_LANES * MAX_VERIFIED_BYTES], seeds[2 * MAX_LANES * SEED_BYTES] = {0};
    uint64_t few[MAX_LANES] = {0};
    memcpy(few, alphas + done, (count - done) * sizeof *few);
    memcpy(seeds, randomness + done * 2 * SEED_BYTES, (count - done) * 2 * SEED_BYTES);
    kernel(s, keys, few, seeds, scratch, scratch + MAX_LANES * s->key_bytes, MAX_LANES);
    memcpy(rows0 + done * s->key_bytes, scratch, (count - done) * s->key_bytes);
    memcpy(rows1 + done * s->key_bytes, scratch + MAX_LANES * s->key_bytes,
           (count - done) * s->key_bytes);
    wipe(few, sizeof few);
    wipe(seeds, sizeof seeds);
    wipe(scratch, sizeof scratch);
}

/* All keys of `rows`. Only the first e->blocks blocks of each are read. */
static int verified_rows(verified_kernel kernel, verified_evaluation *e, const verified_shape *s,
                         const uint8_t *rows, size_t count, uint64_t *prints)
{
    uint8_t *scratch = calloc(CHUNK, s->key_bytes);
    e->state = malloc((MAX_BITS + 1) * CHUNK * SEED_BYTES);
    const int failed = !scratch || !e->state;
    for (size_t first = 0; !failed && first < count; first += CHUNK) {
        e->count = count - first < CHUNK ? count - first : CHUNK;
        const uint8_t *row = rows + first * s->key_bytes;
        for (size_t key = 0; key < e->count; key++)
            for (int block = 0; block < e->blocks; block++)
                memcpy(scratch + SEED_BYTES * (CHUNK * (size_t)block + key),
                       row + s->key_bytes * key + SEED_BYTES * (size_t)block, SEED_BYTES);
        memset(e->valid, 0, sizeof e->valid);
        for (size_t key = 0; key < e->count; key++)
            memset(e->valid + SEED_BYTES * key, 0xff, SEED_BYTES);
        e->scratch = scratch;
        kernel(e);
        for (size_t key = 0; key < e->count; key++) {
            memcpy(prints + 3 * (first + key), e->prints + SEED_BYTES * key, SEED_BYTES);
            memcpy(prints + 3 * (first + key) + 2, e->totals + SEED_BYTES * key, 8);
        }
    }
    free(scratch);
    free(e->state);
    return failed ? -1 : 0;
}

#endif
