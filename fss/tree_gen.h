/* Generation of tree keys; included after tree_eval.h, once for each instruction set.
 *
 * A lane is a key, and both servers' seeds advance together down the path of its own alpha. Every
 * choice by a bit of alpha is a mask: neither branches nor addresses depend on secrets. */

typedef struct {
    uint8_t seeds[2][CHUNK * SEED_BYTES];   /* without control bits */
    uint8_t control[2][CHUNK * SEED_BYTES]; /* all ones or zero */
} NAME(path);

/* Spreads bit `shift` of each key's alpha over its block. */
FN VEC NAME(alpha_mask)(const uint64_t *alphas, size_t key, __m128i shift)
{
    uint64_t pair[2 * LANES];
    for (int lane = 0; lane < LANES; lane++)
        pair[2 * lane] = pair[2 * lane + 1] = alphas[key + lane];
    VEC bits = V_AND(V_SHIFT_RIGHT(V_LOAD(pair), shift), V_PAIR(1, 1));
    return V_SUB(V_PAIR(0, 0), bits);
}

/* W with v0 - v1 + (t0 - t1) W = target: negated where server 1 holds the control bit. */
FN VEC NAME(correct_word)(VEC target, VEC v0, VEC v1, VEC t1)
{
    VEC word = V_ADD(V_SUB(target, v0), v1);
    return V_SUB(V_XOR(word, t1), t1);
}

FN void NAME(put_words)(uint8_t *rows0, uint8_t *rows1, size_t stride, VEC words, int word_bytes,
                        int high)
{
    uint64_t kept[2 * LANES];
    V_STORE(kept, words);
    for (int lane = 0; lane < LANES; lane++) {
        memcpy(rows0 + stride * lane, &kept[2 * lane + high], word_bytes);
        memcpy(rows1 + stride * lane, &kept[2 * lane + high], word_bytes);
    }
}

FN void NAME(put_blocks)(uint8_t *rows0, uint8_t *rows1, size_t stride, VEC blocks)
{
    uint8_t kept[LANES * SEED_BYTES];
    V_STORE(kept, blocks);
    for (int lane = 0; lane < LANES; lane++) {
        memcpy(rows0 + stride * lane, kept + SEED_BYTES * lane, SEED_BYTES);
        memcpy(rows1 + stride * lane, kept + SEED_BYTES * lane, SEED_BYTES);
    }
}

/* One level for LANES keys. The correction makes both servers equal on the child that alpha
 * leaves, and their control bits different on the one it takes (twin.py says the same). */
FN void NAME(gen_level)(const tree_shape *s, NAME(path) *path, size_t key, VEC alpha,
                        const VEC (*k)[ROUND_KEYS], uint8_t *row0, uint8_t *row1)
{
    const size_t at = SEED_BYTES * key;
    const VEC s0 = V_LOAD(path->seeds[0] + at), s1 = V_LOAD(path->seeds[1] + at);
    const VEC t0 = V_LOAD(path->control[0] + at), t1 = V_LOAD(path->control[1] + at);
    VEC l[2] = {s0, s1}, r[2] = {s0, s1}, v[2] = {s0, s1};
    NAME(hash)(l, 2, k[LEFT]);
    NAME(hash)(r, 2, k[RIGHT]);
    if (s->step) {
        NAME(hash)(v, 2, k[VALUE]);
        VEC target = V_AND(alpha, V_PAIR(1, 1));
        NAME(put_words)(row0 + SEED_BYTES, row1 + SEED_BYTES, s->key_bytes,
                        NAME(correct_word)(target, v[0], v[1], t1), s->word_bytes, 0);
    }
    VEC keep0 = V_SELECT(alpha, r[0], l[0]), keep1 = V_SELECT(alpha, r[1], l[1]);
    VEC lose = V_XOR(V_SELECT(alpha, l[0], r[0]), V_SELECT(alpha, l[1], r[1]));
    VEC kept_bit = V_SELECT(alpha, V_PAIR(2, 0), V_PAIR(1, 0));
    VEC differ = V_ANDNOT(V_XOR(keep0, keep1), kept_bit);
    VEC correction = V_OR(V_ANDNOT(kept_bit, lose), differ);
    NAME(put_blocks)(row0, row1, s->key_bytes, correction);
    keep0 = V_XOR(keep0, V_AND(correction, t0));
    keep1 = V_XOR(keep1, V_AND(correction, t1));
    const __m128i left = _mm_cvtsi32_si128(31), right = _mm_cvtsi32_si128(30);
    V_STORE(path->control[0] + at,
            V_SELECT(alpha, V_SPREAD(keep0, right), V_SPREAD(keep0, left)));
    V_STORE(path->control[1] + at,
            V_SELECT(alpha, V_SPREAD(keep1, right), V_SPREAD(keep1, left)));
    V_STORE(path->seeds[0] + at, NAME(clear)(keep0));
    V_STORE(path->seeds[1] + at, NAME(clear)(keep1));
}

/* target[word] for LANES keys: the step, or the point, at the last bits of alpha. */
FN void NAME(terminal_target)(const tree_shape *s, const uint64_t *alphas, int word, uint64_t *out,
                              int high)
{
    const uint64_t last = ((uint64_t)1 << s->terminal_bits) - 1;
    for (int lane = 0; lane < LANES; lane++) {
        const uint64_t end = alphas[lane] & last, here = (uint64_t)word;
        const uint64_t value = s->step ? (here - end) >> 63 : ((here ^ end) - 1) >> 63;
        out[2 * lane + high] = value;
    }
}

FN void NAME(gen_terminal)(const tree_shape *s, const NAME(path) *path, size_t key,
                           const uint64_t *alphas, const VEC *k, uint8_t *row0, uint8_t *row1)
{
    const size_t at = SEED_BYTES * key;
    const VEC t1 = V_LOAD(path->control[1] + at);
    const int per_block = SEED_BYTES / s->word_bytes;
    for (int block = 0; block * per_block < s->words; block++) {
        const VEC number = V_PAIR(block, 0);
        VEC v[2] = {V_OR(V_LOAD(path->seeds[0] + at), number),
                    V_OR(V_LOAD(path->seeds[1] + at), number)};
        NAME(hash)(v, 2, k);
        for (int part = 0; part < per_block / 2; part++) {
            const __m128i shift = _mm_cvtsi32_si128(part * s->word_bytes * 8);
            for (int high = 0; high < 2; high++) {
                const int word = block * per_block + high * (per_block / 2) + part;
                if (word >= s->words)
                    continue;
                uint64_t target[2 * LANES] = {0};
                NAME(terminal_target)(s, alphas + key, word, target, high);
                VEC correct = NAME(correct_word)(V_LOAD(target), V_SHIFT_RIGHT(v[0], shift),
                                                 V_SHIFT_RIGHT(v[1], shift), t1);
                NAME(put_words)(row0 + (size_t)word * s->word_bytes,
                                row1 + (size_t)word * s->word_bytes, s->key_bytes, correct,
                                s->word_bytes, high);
            }
        }
    }
}

/* `count` rows for each server; count is a multiple of LANES, at most CHUNK. */
ENTRY void NAME(gen_chunk)(const tree_shape *s, const schedule *keys, const uint64_t *alphas,
                           const uint8_t *randomness, uint8_t *rows0, uint8_t *rows1, size_t count)
{
    VEC k[USAGES][ROUND_KEYS];
    NAME(path) path;
    for (int usage = 0; usage < USAGES; usage++)
        NAME(broadcast)(k[usage], &keys[usage]);
    for (size_t key = 0; key < count; key++)
        for (int server = 0; server < 2; server++) {
            uint8_t *seed = path.seeds[server] + SEED_BYTES * key;
            memcpy(seed, randomness + SEED_BYTES * (2 * key + server), SEED_BYTES);
            seed[0] &= 0xfc;
            memset(path.control[server] + SEED_BYTES * key, server ? 0xff : 0, SEED_BYTES);
            memcpy((server ? rows1 : rows0) + s->key_bytes * key, seed, SEED_BYTES);
        }
    for (int level = 0; level < s->levels; level++) {
        const size_t offset = SEED_BYTES + (size_t)level * s->level_bytes;
        const __m128i shift = _mm_cvtsi32_si128(s->bits - 1 - level);
        for (size_t key = 0; key < count; key += LANES) {
            const size_t row = s->key_bytes * key + offset;
            NAME(gen_level)(s, &path, key, NAME(alpha_mask)(alphas, key, shift),
                            (const VEC(*)[ROUND_KEYS])k, rows0 + row, rows1 + row);
        }
    }
    for (size_t key = 0; key < count; key += LANES) {
        const size_t row = s->key_bytes * key + s->words_offset;
        NAME(gen_terminal)(s, &path, key, alphas, k[VALUE], rows0 + row, rows1 + row);
    }
    /* The stack must not keep the path of somebody's alpha. */
    volatile uint8_t *wipe = (volatile uint8_t *)&path;
    for (size_t i = 0; i < sizeof path; i++)
        wipe[i] = 0;
}
