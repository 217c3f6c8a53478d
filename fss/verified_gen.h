/* Generation of verified keys; included after lanes.h, once for each instruction set.
 *
 * A lane is a key. On the path of alpha the two servers' states always differ by the key's own
 * offset, whose lowest bit is 1: choices by a bit of alpha and by control bits are masks. */

/* Bit 0 of every block, spread over the block. */
FN VEC NAME(control)(VEC state)
{
    return V_SPREAD(state, _mm_cvtsi32_si128(31));
}

/* One level for LANES keys: states[server] moves to the child on the path. `row` is where the level
 * starts; a level without words (the first) has only the correction of states. */
FN void NAME(verified_level)(VEC *states, VEC right, const VEC (*k)[ROUND_KEYS], uint8_t *row,
                             size_t stride, int words)
{
    const VEC offset = V_XOR(states[0], states[1]);
    VEC h[2], v[4];
    NAME(hash_under)(states, 2, h, k, 1);
    const VEC correction = V_XOR(V_XOR(h[0], h[1]), V_ANDNOT(right, offset));
    NAME(put)(row, stride, correction, SEED_BYTES);
    for (int server = 0; server < 2; server++) {
        const VEC mask = NAME(control)(states[server]);
        h[server] = V_XOR(h[server], V_AND(mask, correction));
        states[server] = V_XOR(h[server], V_AND(right, states[server]));
    }
    if (!words)
        return;
    NAME(hash_under)(states, 2, v, k + 1, 2); /* v[2 * usage + server] */
    const VEC word = NAME(correct_word)(V_PAIR(1, 1), v[0], v[1], NAME(control)(states[1]));
    const VEC low = V_PAIR(-1, 0);
    NAME(put)(row + SEED_BYTES, stride, V_SELECT(low, word, V_XOR(v[0], v[1])), SEED_BYTES);
    NAME(put)(row + 2 * SEED_BYTES, stride, V_XOR(v[2], v[3]), SEED_BYTES);
}

/* `count` rows for each server; count is a multiple of LANES, at most GEN_CHUNK. */
ENTRY void NAME(verified_gen_chunk)(const verified_shape *s, const schedule *keys,
                                    const uint64_t *alphas, const uint8_t *randomness,
                                    uint8_t *rows0, uint8_t *rows1, size_t count)
{
    VEC k[VERIFIED_USAGES][ROUND_KEYS];
    const VEC(*usages)[ROUND_KEYS] = (const VEC(*)[ROUND_KEYS])k;
    uint8_t seeds[2][GEN_CHUNK * SEED_BYTES];
    uint64_t twice[2 * GEN_CHUNK]; /* each alpha twice, to fill a block */
    uint8_t rows[GEN_CHUNK * MAX_VERIFIED_BYTES];
    VEC states[GEN_CHUNK / LANES][2];
    for (int usage = 0; usage < VERIFIED_USAGES; usage++)
        NAME(broadcast)(k[usage], &keys[usage]);
    for (size_t key = 0; key < count; key++) {
        twice[2 * key] = twice[2 * key + 1] = alphas[key];
        for (int server = 0; server < 2; server++) {
            uint8_t *seed = seeds[server] + SEED_BYTES * key;
            memcpy(seed, randomness + SEED_BYTES * (2 * key + server), SEED_BYTES);
            seed[0] = (uint8_t)((seed[0] & 0xfe) | server);
        }
    }
    for (size_t key = 0; key < count; key += LANES)
        for (int server = 0; server < 2; server++)
            states[key / LANES][server] = V_LOAD(seeds[server] + SEED_BYTES * key);
    for (int level = 1; level <= s->bits; level++) {
        uint8_t *row = rows + SEED_BYTES * (size_t)state_block(level);
        const __m128i bit = _mm_cvtsi32_si128(s->bits - level);
        for (size_t key = 0; key < count; key += LANES) {
            const VEC turn = V_AND(V_SHIFT_RIGHT(V_LOAD(twice + 2 * key), bit), V_PAIR(1, 1));
            NAME(verified_level)(states[key / LANES], V_SUB(V_PAIR(0, 0), turn), usages,
                                 row + s->key_bytes * key, s->key_bytes, level > 1);
        }
    }
    memcpy(rows0, rows, count * s->key_bytes);
    memcpy(rows1, rows, count * s->key_bytes);
    for (size_t key = 0; key < count; key++) {
        memcpy(rows0 + s->key_bytes * key, seeds[0] + SEED_BYTES * key, SEED_BYTES);
        memcpy(rows1 + s->key_bytes * key, seeds[1] + SEED_BYTES * key, SEED_BYTES);
    }
    wipe(states, sizeof states);
    wipe(seeds, sizeof seeds);
    wipe(twice, sizeof twice);
}
