/* How a verified key is laid out, as verified.py describes it: 16-byte blocks all along. */
#ifndef FSS_VERIFIED_SHAPE_H
#define FSS_VERIFIED_SHAPE_H

#include "aes.h"

enum { VERIFIED_USAGES = 3, MAX_VERIFIED_BYTES = 48 * MAX_BITS - 16, NODE_WEIGHTS = 4 };

/* Grid keys, as grid.py describes them: one more usage, the words of the leaves below a node, and
 * how many blocks after the last level's corrections the low part begins. */
enum { LOW_BITS = 3, WORD_BLOCKS = 4, WORDS_USAGE = 3, GRID_USAGES = 4, LOW_OFFSET = 7 };
enum { LOW_BLOCKS = 3 * LOW_BITS - 1, MIN_GRID_BITS = LOW_BITS + 2, MAX_GRID_BITS = 24 };

/* Kinds of visited node: split and not compared, split and compared, not split. */
enum { INNER, CHECKED, LEAF };

typedef struct {
    int bits;
    size_t key_bytes;
} verified_shape;

/* The block of a level that corrects states. From the second level on two more follow: one corrects
 * the value and a third of the proof, the next the rest of the proof. */
static inline int state_block(int level)
{
    return level == 1 ? 1 : 3 * level - 4;
}

typedef struct {
    const schedule *keys; /* VERIFIED_USAGES or GRID_USAGES of them */
    const uint8_t *scratch; /* block b of key k is at 16 * (CHUNK * b + k) */
    int blocks;             /* of a key that the nodes need */
    size_t count;           /* keys in this chunk, at most CHUNK */
    const uint8_t *nodes;   /* in preorder */
    const uint64_t *weights; /* NODE_WEIGHTS for each checked node, the last of them unused */
    const uint64_t *correction_weights; /* 2 for each block */
    size_t next_node, next_check, next_leaf;
    uint64_t *sums; /* for each leaf, added to */
    int levels;     /* of a grid key above its words */
    uint8_t *state; /* (MAX_BITS + 1) * CHUNK blocks */
    uint8_t prints[CHUNK * SEED_BYTES], totals[CHUNK * SEED_BYTES], valid[CHUNK * SEED_BYTES];
    uint8_t words[WORD_BLOCKS * CHUNK * SEED_BYTES]; /* of grid keys, less those of their low part */
} verified_evaluation;

#endif
