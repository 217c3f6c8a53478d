/* Generation of verified keys; included after lanes.h, once for each instruction set.
 *
 * A lane is a key. On the path of alpha the two servers' states always differ by the key's own
 * offset, whose lowest bit is 1: choices by a bit of alpha and by control bits are masks. */

/* Bit 0 of every block, spread over the block. */
FN VEC NAME(control)(VEC state)
{
    return V_SPREAD(state, _mm_cvtsi32_si128(31));
}

/* One level for n vectors of keys: states[2 * j + server] moves to the child on the path, to the
 * right where `right` is all ones. `row` is where the level starts; the first level has no words. */
FN void NAME(verified_level)(VEC *states, const VEC *right, int n, const VEC (*k)[ROUND_KEYS],
                             uint8_t *row, size_t stride, int words)
{
    VEC h[4], v[8];
    NAME(hash_under)(states, 2 * n, h, k, 1);
    for (int j = 0; j < n; j++) {
        VEC *state = states + 2 * j;
        const VEC offset = V_XOR(state[0], state[1]);
        const VEC correction =
            V_XOR(V_XOR(h[2 * j], h[2 * j + 1]), V_ANDNOT(right[j], offset));
        NAME(put)(row + stride * LANES * j, stride, correction, SEED_BYTES);
        for (int server = 0; server < 2; server++) {
            const VEC left =
                V_XOR(h[2 * j + server], V_AND(NAME(control)(state[server]), correction));
            state[server] = V_XOR(left, V_AND(right[j], state[server]));
        }
    }
    if (!words)
        return;
    NAME(hash_under)(states, 2 * n, v, k + 1, 2); /* v[2 * n * usage + 2 * j + server] */
    const VEC low = V_PAIR(-1, 0);
    for (int j = 0; j < n; j++) {
        const VEC *value = v + 2 * j, *proof = v + 2 * n + 2 * j;
        uint8_t *to = row + stride * LANES * j + SEED_BYTES;
        const VEC word = NAME(correct_word)(V_PAIR(1, 1), value[0], value[1],
                                            NAME(control)(states[2 * j + 1]));
        NAME(put)(to, stride, V_SELECT(low, word, V_XOR(value[0], value[1])), SEED_BYTES);
        NAME(put)(to + SEED_BYTES, stride, V_XOR(proof[0], proof[1]), SEED_BYTES);
    }
}

/* Both servers' states on the path of each alpha. */
typedef struct {
    uint8_t seeds[2][GEN_CHUNK * SEED_BYTES];
    uint64_t alphas[2 * GEN_CHUNK]; /* each twice, to fill a block */
    VEC states[GEN_CHUNK / LANES][2], right[GEN_CHUNK / LANES];
} NAME(verified_path);

FN void NAME(verified_roots)(NAME(verified_path) *path, const uint64_t *alphas,
                             const uint8_t *randomness, size_t count)
{
    for (size_t key = 0; key < count; key++) {
        path->alphas[2 * key] = path->alphas[2 * key + 1] = alphas[key];
        for (int server = 0; server < 2; server++) {
            uint8_t *seed = path->seeds[server] + SEED_BYTES * key;
            memcpy(seed, randomness + SEED_BYTES * (2 * key + server), SEED_BYTES);
            seed[0] = (uint8_t)((seed[0] & 0xfe) | server);
        }
    }
    for (size_t key = 0; key < count; key += LANES)
        for (int server = 0; server < 2; server++)
            path->states[key / LANES][server] = V_LOAD(path->seeds[server] + SEED_BYTES * key);
}

/* One level down, to the side of bit `bit` of alpha; corrections go to `row` of the first key. */
FN void NAME(verified_step)(NAME(verified_path) *path, int bit, const VEC (*k)[ROUND_KEYS],
                            uint8_t *row, size_t stride, int words, size_t count)
{
    const __m128i shift = _mm_cvtsi32_si128(bit);
    for (size_t key = 0; key < count; key += LANES) {
        const VEC turn =
            V_AND(V_SHIFT_RIGHT(V_LOAD(path->alphas + 2 * key), shift), V_PAIR(1, 1));
        path->right[key / LANES] = V_SUB(V_PAIR(0, 0), turn);
    }
    size_t key = 0;
    for (; key + 2 * LANES <= count; key += 2 * LANES)
        NAME(verified_level)(path->states[key / LANES], path->right + key / LANES, 2, k,
                             row + stride * key, stride, words);
    for (; key < count; key += LANES)
        NAME(verified_level)(path->states[key / LANES], path->right + key / LANES, 1, k,
                             row + stride * key, stride, words);
}

/* Copies rows out for both servers, each with its own root, and wipes what is secret. */
FN void NAME(verified_finish)(NAME(verified_path) *path, const uint8_t *rows, size_t key_bytes,
                              uint8_t *rows0, uint8_t *rows1, size_t count)
{
    memcpy(rows0, rows, count * key_bytes);
    memcpy(rows1, rows, count * key_bytes);
    for (size_t key = 0; key < count; key++) {
        memcpy(rows0 + key_bytes * key, path->seeds[0] + SEED_BYTES * key, SEED_BYTES);
        memcpy(rows1 + key_bytes * key, path->seeds[1] + SEED_BYTES * key, SEED_BYTES);
    }
    wipe(path, sizeof *path);
}

/* `count` rows for each server; count is a multiple of LANES, at most GEN_CHUNK. */
ENTRY void NAME(verified_gen_chunk)(const verified_shape *s, const schedule *keys,
                                    const uint64_t *alphas, const uint8_t *randomness,
                                    uint8_t *rows0, uint8_t *rows1, size_t count)
{
    VEC k[VERIFIED_USAGES][ROUND_KEYS];
    const VEC(*usages)[ROUND_KEYS] = (const VEC(*)[ROUND_KEYS])k;
    NAME(verified_path) path;
    uint8_t rows[GEN_CHUNK * MAX_VERIFIED_BYTES];
    for (int usage = 0; usage < VERIFIED_USAGES; usage++)
        NAME(broadcast)(k[usage], &keys[usage]);
    NAME(verified_roots)(&path, alphas, randomness, count);
    for (int level = 1; level <= s->bits; level++)
        NAME(verified_step)(&path, s->bits - level, usages,
                            rows + SEED_BYTES * (size_t)state_block(level), s->key_bytes,
                            level > 1, count);
    NAME(verified_finish)(&path, rows, s->key_bytes, rows0, rows1, count);
}
