/* Generation of tree keys; included after tree_eval.h, once for each instruction set.
 *
 * A lane is a key, and both servers' seeds advance together down the path of its own alpha. Every
 * choice by a bit of alpha is a mask: neither branches nor addresses depend on secrets. */

typedef struct {
    uint8_t seeds[2][GEN_CHUNK * SEED_BYTES];   /* without control bits */
    uint8_t control[2][GEN_CHUNK * SEED_BYTES]; /* all ones or zero */
    uint64_t alphas[2 * GEN_CHUNK];             /* each twice, to fill a block */
} NAME(path);

/* H of both servers' seeds under every usage: out[usage][server]. */
FN void NAME(hash_usages)(VEC (*out)[2], const VEC *seeds, const VEC (*k)[ROUND_KEYS], int usages)
{
    const VEC s[2] = {NAME(sigma)(seeds[0]), NAME(sigma)(seeds[1])};
    VEC y[2 * USAGES];
    for (int j = 0; j < 2 * usages; j++)
        y[j] = V_XOR(s[j % 2], k[j / 2][0]);
#pragma GCC unroll 9
    for (int r = 1; r < ROUND_KEYS - 1; r++)
        for (int j = 0; j < 2 * usages; j++)
            y[j] = V_ENC(y[j], k[j / 2][r]);
    for (int j = 0; j < 2 * usages; j++)
        out[j / 2][j % 2] = V_ENCLAST(y[j], V_XOR(s[j % 2], k[j / 2][ROUND_KEYS - 1]));
}

/* W with v0 - v1 + (t0 - t1) W = target: negated where server 1 holds the control bit. */
FN VEC NAME(correct_word)(VEC target, VEC v0, VEC v1, VEC t1)
{
    VEC word = V_ADD(V_SUB(target, v0), v1);
    return V_SUB(V_XOR(word, t1), t1);
}

/* The first `bytes` of each lane's block to its row. */
FN void NAME(put)(uint8_t *row, size_t stride, VEC blocks, size_t bytes)
{
    uint8_t kept[LANES * SEED_BYTES];
    V_STORE(kept, blocks);
    for (int lane = 0; lane < LANES; lane++)
        memcpy(row + stride * lane, kept + SEED_BYTES * lane, bytes);
}

/* One level for LANES keys. The correction makes both servers equal on the child that alpha
 * leaves, and their control bits different on the one it takes (twin.py says the same). */
FN void NAME(gen_level)(NAME(path) *path, size_t key, __m128i bit, const VEC (*k)[ROUND_KEYS],
                        uint8_t *row, size_t stride, int step, int word_bytes)
{
    const size_t at = SEED_BYTES * key;
    const VEC seeds[2] = {V_LOAD(path->seeds[0] + at), V_LOAD(path->seeds[1] + at)};
    const VEC t0 = V_LOAD(path->control[0] + at), t1 = V_LOAD(path->control[1] + at);
    const VEC one = V_PAIR(1, 1);
    const VEC target = V_AND(V_SHIFT_RIGHT(V_LOAD(path->alphas + 2 * key), bit), one);
    const VEC right = V_SUB(V_PAIR(0, 0), target);
    VEC h[USAGES][2];
    NAME(hash_usages)(h, seeds, k, step ? USAGES : VALUE);
    if (step)
        NAME(put)(row + SEED_BYTES, stride,
                  NAME(correct_word)(target, h[VALUE][0], h[VALUE][1], t1), word_bytes);
    VEC keep0 = V_SELECT(right, h[RIGHT][0], h[LEFT][0]);
    VEC keep1 = V_SELECT(right, h[RIGHT][1], h[LEFT][1]);
    VEC left_difference = V_XOR(h[LEFT][0], h[LEFT][1]);
    VEC right_difference = V_XOR(h[RIGHT][0], h[RIGHT][1]);
    VEC lose = V_SELECT(right, left_difference, right_difference);
    VEC kept_bit = V_SELECT(right, V_PAIR(2, 0), V_PAIR(1, 0));
    VEC differ = V_ANDNOT(V_XOR(keep0, keep1), kept_bit);
    VEC correction = V_OR(V_ANDNOT(kept_bit, lose), differ);
    NAME(put)(row, stride, correction, SEED_BYTES);
    keep0 = V_XOR(keep0, V_AND(correction, t0));
    keep1 = V_XOR(keep1, V_AND(correction, t1));
    const __m128i last = _mm_cvtsi32_si128(31);
    /* The kept bit, moved to bit 0 of the low word. */
    VEC bit0 = V_SELECT(right, V_SHIFT_RIGHT(keep0, _mm_cvtsi32_si128(1)), keep0);
    VEC bit1 = V_SELECT(right, V_SHIFT_RIGHT(keep1, _mm_cvtsi32_si128(1)), keep1);
    V_STORE(path->control[0] + at, V_SPREAD(bit0, last));
    V_STORE(path->control[1] + at, V_SPREAD(bit1, last));
    V_STORE(path->seeds[0] + at, NAME(clear)(keep0));
    V_STORE(path->seeds[1] + at, NAME(clear)(keep1));
}

/* The values that words `low` and `high` of a terminal node open to: the step or point at alpha. */
FN VEC NAME(terminal_target)(const tree_shape *s, VEC last, int low, int high)
{
    const VEC here = V_PAIR(low, high);
    const VEC sign = s->step ? V_SUB(here, last) : V_SUB(V_XOR(here, last), V_PAIR(1, 1));
    return V_SHIFT_RIGHT(sign, _mm_cvtsi32_si128(63));
}

FN void NAME(gen_terminal)(const tree_shape *s, const NAME(path) *path, size_t key, const VEC *k,
                           uint8_t *row)
{
    enum { BLOCKS = 4 };
    const size_t at = SEED_BYTES * key;
    const VEC t1 = V_LOAD(path->control[1] + at);
    const VEC last = V_AND(V_LOAD(path->alphas + 2 * key),
                           V_PAIR((1 << s->terminal_bits) - 1, (1 << s->terminal_bits) - 1));
    VEC v[2 * BLOCKS];
    for (int j = 0; j < 2 * BLOCKS; j++)
        v[j] = V_OR(V_LOAD(path->seeds[j % 2] + at), V_PAIR(j / 2, 0));
    NAME(hash)(v, 2 * BLOCKS, k);
    const size_t bytes = (size_t)s->words * s->word_bytes;
    for (int block = 0; block < BLOCKS && (size_t)block * SEED_BYTES < bytes; block++) {
        const VEC v0 = v[2 * block], v1 = v[2 * block + 1];
        VEC words;
        if (s->word_bytes == 8) {
            VEC target = NAME(terminal_target)(s, last, 2 * block, 2 * block + 1);
            words = NAME(correct_word)(target, v0, v1, t1);
        } else {
            const __m128i half = _mm_cvtsi32_si128(32);
            const VEC low_half = V_PAIR(0xffffffff, 0xffffffff);
            VEC even = NAME(correct_word)(NAME(terminal_target)(s, last, 4 * block, 4 * block + 2),
                                          v0, v1, t1);
            VEC odd = NAME(correct_word)(
                NAME(terminal_target)(s, last, 4 * block + 1, 4 * block + 3),
                V_SHIFT_RIGHT(v0, half), V_SHIFT_RIGHT(v1, half), t1);
            words = V_OR(V_AND(even, low_half), V_SHIFT_LEFT(odd, half));
        }
        const size_t left = bytes - (size_t)block * SEED_BYTES;
        NAME(put)(row + block * SEED_BYTES, s->key_bytes, words,
                  left < SEED_BYTES ? left : SEED_BYTES);
    }
}

/* `count` rows for each server; count is a multiple of LANES, at most GEN_CHUNK. */
ENTRY void NAME(gen_chunk)(const tree_shape *s, const schedule *keys, const uint64_t *alphas,
                           const uint8_t *randomness, uint8_t *rows0, uint8_t *rows1, size_t count)
{
    VEC k[USAGES][ROUND_KEYS];
    const VEC(*usages)[ROUND_KEYS] = (const VEC(*)[ROUND_KEYS])k;
    NAME(path) path = {0};
    uint8_t roots[2][GEN_CHUNK * SEED_BYTES];
    /* Rows are built in the first-level cache: written in place, every level would miss it. */
    uint8_t rows[GEN_CHUNK * MAX_KEY_BYTES];
    for (int usage = 0; usage < USAGES; usage++)
        NAME(broadcast)(k[usage], &keys[usage]);
    for (size_t key = 0; key < count; key++) {
        path.alphas[2 * key] = path.alphas[2 * key + 1] = alphas[key];
        for (int server = 0; server < 2; server++) {
            uint8_t *seed = path.seeds[server] + SEED_BYTES * key;
            memcpy(seed, randomness + SEED_BYTES * (2 * key + server), SEED_BYTES);
            seed[0] &= 0xfc;
            memset(path.control[server] + SEED_BYTES * key, server ? 0xff : 0, SEED_BYTES);
        }
    }
    memcpy(roots, path.seeds, sizeof roots);
    for (int level = 0; level < s->levels; level++) {
        uint8_t *row = rows + SEED_BYTES + (size_t)level * s->level_bytes;
        const __m128i bit = _mm_cvtsi32_si128(s->bits - 1 - level);
        if (s->step && s->word_bytes == 8)
            for (size_t key = 0; key < count; key += LANES)
                NAME(gen_level)(&path, key, bit, usages, row + s->key_bytes * key, s->key_bytes,
                                1, 8);
        else if (s->step)
            for (size_t key = 0; key < count; key += LANES)
                NAME(gen_level)(&path, key, bit, usages, row + s->key_bytes * key, s->key_bytes,
                                1, 4);
        else
            for (size_t key = 0; key < count; key += LANES)
                NAME(gen_level)(&path, key, bit, usages, row + s->key_bytes * key, s->key_bytes,
                                0, 0);
    }
    for (size_t key = 0; key < count; key += LANES)
        NAME(gen_terminal)(s, &path, key, k[VALUE], rows + s->key_bytes * key + s->words_offset);
    memcpy(rows0, rows, count * s->key_bytes);
    memcpy(rows1, rows, count * s->key_bytes);
    for (size_t key = 0; key < count; key++) {
        memcpy(rows0 + s->key_bytes * key, roots[0] + SEED_BYTES * key, SEED_BYTES);
        memcpy(rows1 + s->key_bytes * key, roots[1] + SEED_BYTES * key, SEED_BYTES);
    }
    wipe(&path, sizeof path);
    wipe(roots, sizeof roots);
}
