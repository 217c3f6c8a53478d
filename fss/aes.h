/* AES-128 key schedules, and the shape of a tree key as the Python side describes it. */
#ifndef FSS_AES_H
#define FSS_AES_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define AES_TARGET __attribute__((target("aes,sse4.1")))
#define ROUND_KEYS 11

typedef struct {
    __m128i k[ROUND_KEYS];
} schedule;

#define EXPAND_ROUND(i, rcon)                                                      \
    do {                                                                           \
        __m128i t = _mm_aeskeygenassist_si128(s->k[(i) - 1], rcon);                \
        __m128i x = s->k[(i) - 1];                                                 \
        x = _mm_xor_si128(x, _mm_slli_si128(x, 4));                                \
        x = _mm_xor_si128(x, _mm_slli_si128(x, 8));                                \
        s->k[i] = _mm_xor_si128(x, _mm_shuffle_epi32(t, 0xff));                    \
    } while (0)

/* FIPS 197, section 5.2. */
static inline AES_TARGET void expand_key(schedule *s, const uint8_t *key)
{
    s->k[0] = _mm_loadu_si128((const __m128i *)key);
    EXPAND_ROUND(1, 0x01);
    EXPAND_ROUND(2, 0x02);
    EXPAND_ROUND(3, 0x04);
    EXPAND_ROUND(4, 0x08);
    EXPAND_ROUND(5, 0x10);
    EXPAND_ROUND(6, 0x20);
    EXPAND_ROUND(7, 0x40);
    EXPAND_ROUND(8, 0x80);
    EXPAND_ROUND(9, 0x1b);
    EXPAND_ROUND(10, 0x36);
}

/* Seeds of somebody's path must not stay on the stack. */
static inline void wipe(void *memory, size_t bytes)
{
    memset(memory, 0, bytes);
    __asm__ volatile("" : : "r"(memory) : "memory");
}

/* Mirrors TreeShape in shape.py; offsets are into one row. */
typedef struct {
    int bits, terminal_bits, words, word_bytes, step;
    int levels;
    size_t level_bytes, words_offset, key_bytes;
} tree_shape;

enum { LEFT, RIGHT, VALUE, USAGES };
/* Square-root keys: slots per row, slots that a server holds, and bytes per held slot. */
enum { SLOTS = 12, HELD_SLOTS = 10, ENTRY_BYTES = 25 };
enum { SEED_BYTES = 16, MAX_BITS = 64, MAX_KEY_BYTES = 24 * MAX_BITS };

/* How many keys are computed together: their state stays in the first-level cache, and one
 * mispredicted threshold bit is paid once for all of them. A multiple of every kernel's step. Gen
 * has no thresholds, and takes fewer keys so that their rows stay in the cache too. */
enum { CHUNK = 64, GEN_CHUNK = 8, MAX_LANES = 4 };

/* Where the fields of a chunk are: field f of its key k is at
 * data + f.offset * stride + (first + k) * f.width. */
typedef struct {
    const uint8_t *data;
    size_t stride, first;
} chunk_view;

typedef struct {
    const tree_shape *shape;
    const schedule *keys; /* USAGES of them */
    int server;
    chunk_view view;
    size_t count;   /* keys in this chunk, at most CHUNK */
    int look_ahead; /* whether another full chunk follows in memory */
    const uint64_t *points;
    size_t points_count;
    uint64_t *sums;   /* points_count, added to; or NULL */
    uint64_t *matrix; /* count rows of points_count; or NULL */
    uint8_t *state;   /* (MAX_BITS + 1) * CHUNK blocks */
    uint64_t *totals; /* (MAX_BITS + 1) * CHUNK values, for the matrix */
} evaluation;

#endif
