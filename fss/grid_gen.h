/* Generation of grid keys without their low part; included after verified_gen.h, once for each
 * instruction set. */

/* Corrections of proofs and words at the last level, for LANES keys with states of both servers.
 * `low` are the bits of alpha below it. */
FN void NAME(grid_terminal)(const VEC *states, VEC low, const VEC (*k)[ROUND_KEYS], uint8_t *row,
                            size_t stride)
{
    VEC v[4], x[2 * WORD_BLOCKS];
    NAME(hash_under)(states, 2, v, k + 1, 2); /* v[2 * usage + server] */
    for (int n = 0; n < WORD_BLOCKS; n++)
        for (int server = 0; server < 2; server++)
            x[2 * n + server] = V_XOR(states[server], V_PAIR(2 * n, 0));
    NAME(hash)(x, 2 * WORD_BLOCKS, k[WORDS_USAGE]);
    NAME(put)(row, stride, V_XOR(v[0], v[1]), SEED_BYTES);
    NAME(put)(row + SEED_BYTES, stride, V_XOR(v[2], v[3]), SEED_BYTES);
    const VEC t1 = NAME(control)(states[1]);
    for (int n = 0; n < WORD_BLOCKS; n++) {
        const VEC away = V_XOR(low, V_PAIR(2 * n, 2 * n + 1));
        const VEC target = V_SHIFT_RIGHT(V_SUB(away, V_PAIR(1, 1)), _mm_cvtsi32_si128(63));
        NAME(put)(row + SEED_BYTES * (2 + n), stride,
                  NAME(correct_word)(target, x[2 * n], x[2 * n + 1], t1), SEED_BYTES);
    }
}

/* `count` rows for each server; count is a multiple of LANES, at most GEN_CHUNK. */
ENTRY void NAME(grid_gen_chunk)(const verified_shape *s, const schedule *keys,
                                const uint64_t *alphas, const uint8_t *randomness, uint8_t *rows0,
                                uint8_t *rows1, size_t count)
{
    VEC k[GRID_USAGES][ROUND_KEYS];
    const VEC(*usages)[ROUND_KEYS] = (const VEC(*)[ROUND_KEYS])k;
    NAME(verified_path) path;
    uint8_t rows[GEN_CHUNK * MAX_VERIFIED_BYTES];
    const int levels = s->bits - LOW_BITS;
    for (int usage = 0; usage < GRID_USAGES; usage++)
        NAME(broadcast)(k[usage], &keys[usage]);
    NAME(verified_roots)(&path, alphas, randomness, count);
    for (int level = 1; level <= levels; level++)
        NAME(verified_step)(&path, s->bits - level, usages, rows + SEED_BYTES * (size_t)level,
                            s->key_bytes, 0, count);
    for (size_t key = 0; key < count; key += LANES) {
        const long long last = (1 << LOW_BITS) - 1;
        const VEC low = V_AND(V_LOAD(path.alphas + 2 * key), V_PAIR(last, last));
        NAME(grid_terminal)(path.states[key / LANES], low, usages,
                            rows + s->key_bytes * key + SEED_BYTES * (size_t)(levels + 1),
                            s->key_bytes);
    }
    NAME(verified_finish)(&path, rows, s->key_bytes, rows0, rows1, count);
}
