/* Cuts ranges of keys into chunks for the kernels; the same for every instruction set.
 *
 * Keys come level-major, or as rows `row_bytes` apart (0 says level-major).
 * Kernels read whole groups of lanes. Where those would run past the last key, or where keys come
 * as rows, the chunk is first copied into a level-major scratch whose spare lanes are zero. */
#ifndef FSS_CHUNKS_H
#define FSS_CHUNKS_H

#include "aes.h"

typedef void (*gen_kernel)(const tree_shape *, const schedule *, const uint64_t *, const uint8_t *,
                           uint8_t *, uint8_t *, size_t);
typedef void (*evaluate_kernel)(evaluation *);

/* Whether points are strictly ascending and inside the domain, as the trie walk needs them. */
static int ascending(const uint64_t *points, size_t count, int bits)
{
    for (size_t i = 1; i < count; i++)
        if (points[i - 1] >= points[i])
            return 0;
    return count == 0 || bits == MAX_BITS || points[count - 1] >> bits == 0;
}

static int gen_rows(gen_kernel kernel, const tree_shape *s, const schedule *keys,
                    const uint64_t *alphas, const uint8_t *randomness, uint8_t *rows0,
                    uint8_t *rows1, size_t count)
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
        return 0;
    /* Some keys are left: run them beside dummies. */
    uint8_t *scratch = calloc(2 * MAX_LANES, s->key_bytes);
    if (!scratch)
        return -1;
    uint64_t few[MAX_LANES] = {0};
    uint8_t seeds[2 * MAX_LANES * SEED_BYTES] = {0};
    memcpy(few, alphas + done, (count - done) * sizeof *few);
    memcpy(seeds, randomness + done * 2 * SEED_BYTES, (count - done) * 2 * SEED_BYTES);
    kernel(s, keys, few, seeds, scratch, scratch + MAX_LANES * s->key_bytes, MAX_LANES);
    memcpy(rows0 + done * s->key_bytes, scratch, (count - done) * s->key_bytes);
    memcpy(rows1 + done * s->key_bytes, scratch + MAX_LANES * s->key_bytes,
           (count - done) * s->key_bytes);
    wipe(few, sizeof few);
    wipe(seeds, sizeof seeds);
    wipe(scratch, 2 * MAX_LANES * s->key_bytes);
    free(scratch);
    return 0;
}

/* One field of `count` keys into the scratch, from wherever they are. */
static void copy_field(uint8_t *scratch, const uint8_t *data, size_t row_bytes, size_t total,
                       size_t first, size_t count, size_t offset, size_t width)
{
    uint8_t *to = scratch + offset * CHUNK;
    if (!row_bytes) {
        memcpy(to, data + offset * total + first * width, count * width);
        return;
    }
    const uint8_t *from = data + first * row_bytes + offset;
    if (width == SEED_BYTES)
        for (size_t key = 0; key < count; key++)
            memcpy(to + key * SEED_BYTES, from + key * row_bytes, SEED_BYTES);
    else
        for (size_t key = 0; key < count; key++)
            memcpy(to + key * width, from + key * row_bytes, width);
}

/* Levels that points reach. A comparison's point that only turns right from some level on is settled
 * there, or in the terminal node if that is the next: of a coarse grid most of a key is never read. */
static int levels_read(const tree_shape *s, const uint64_t *points, size_t count)
{
    int deepest = s->step ? 0 : s->bits;
    for (size_t i = 0; i < count && deepest < s->bits; i++) {
        const int right = ~points[i] ? __builtin_ctzll(~points[i]) : MAX_BITS;
        const int level = right < s->bits ? s->bits - right : 0;
        deepest = level > deepest ? level : deepest;
    }
    return deepest;
}

/* What the first `read` levels of a domain need of the chunk's keys. */
static void copy_chunk(uint8_t *scratch, const tree_shape *s, const uint8_t *data, size_t row_bytes,
                       size_t total, size_t first, size_t count, int read)
{
    copy_field(scratch, data, row_bytes, total, first, count, 0, SEED_BYTES);
    for (int level = 0; level < s->levels && level < read; level++) {
        size_t offset = SEED_BYTES + (size_t)level * s->level_bytes;
        copy_field(scratch, data, row_bytes, total, first, count, offset, SEED_BYTES);
        if (s->step)
            copy_field(scratch, data, row_bytes, total, first, count, offset + SEED_BYTES,
                       s->word_bytes);
    }
    for (int word = 0; word < s->words && read >= s->levels; word++)
        copy_field(scratch, data, row_bytes, total, first, count,
                   s->words_offset + (size_t)word * s->word_bytes, s->word_bytes);
}

/* Keys [begin, end) of `total`. Memory does not depend on how many there are. */
static int evaluate_range(evaluate_kernel kernel, evaluation *e, const uint8_t *data,
                          size_t row_bytes, size_t total, size_t begin, size_t end)
{
    const tree_shape *s = e->shape;
    if (e->points_count == 0)
        return 0;
    uint8_t *scratch = calloc(CHUNK, s->key_bytes);
    e->state = malloc((MAX_BITS + 1) * CHUNK * SEED_BYTES);
    e->totals = malloc((MAX_BITS + 1) * CHUNK * sizeof *e->totals);
    const int failed = !scratch || !e->state || !e->totals;
    uint64_t *const matrix = e->matrix;
    const int read = levels_read(s, e->points, e->points_count);
    for (size_t first = begin; !failed && first < end; first += CHUNK) {
        e->count = end - first < CHUNK ? end - first : CHUNK;
        const int direct = !row_bytes && e->count == CHUNK;
        if (!direct)
            copy_chunk(scratch, s, data, row_bytes, total, first, e->count, read);
        e->view.data = direct ? data : scratch;
        e->view.stride = direct ? total : CHUNK;
        e->view.first = direct ? first : 0;
        e->look_ahead = direct && end - first >= 2 * CHUNK;
        if (matrix)
            e->matrix = matrix + (first - begin) * e->points_count;
        kernel(e);
    }
    free(scratch);
    free(e->state);
    free(e->totals);
    return failed ? -1 : 0;
}

#endif
