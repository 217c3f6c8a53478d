/* Nodes whose values are only added up, so that they never leave the registers. Included by
 * tree_eval.h, once for each instruction set. */

/* H of TOGETHER vectors of seeds under all usages, but for the last round: y[usage][j]. */
FN void NAME(hash_usages_but_last)(const VEC *x, VEC (*y)[TOGETHER], const VEC (*k)[ROUND_KEYS])
{
    for (int usage = 0; usage < USAGES; usage++)
        for (int j = 0; j < TOGETHER; j++)
            y[usage][j] = V_XOR(x[j], k[usage][0]);
#pragma GCC unroll 9
    for (int r = 1; r < ROUND_KEYS - 1; r++)
        for (int usage = 0; usage < USAGES; usage++)
            for (int j = 0; j < TOGETHER; j++)
                y[usage][j] = V_ENC(y[usage][j], k[usage][r]);
}

/* Both children and the sum of the values of a node: right in place. The seeds' correction goes in with the last round's
 * key, which is shorter than correcting the hash. */
FN uint64_t NAME(split_sum)(uint8_t *state, int turn, const VEC (*k)[ROUND_KEYS],
                            const uint8_t *seeds, const uint8_t *words, int word_bytes,
                            uint8_t *left, size_t count)
{
    enum { LAST = ROUND_KEYS - 1 };
    VEC sum = V_PAIR(0, 0);
    for (size_t key = 0; key < count; key += TOGETHER * LANES) {
        VEC x[TOGETHER], y[USAGES][TOGETHER];
        for (int j = 0; j < TOGETHER; j++)
            x[j] = NAME(sigma)(NAME(clear)(V_LOAD(state + SEED_BYTES * (key + LANES * j))));
        NAME(hash_usages_but_last)(x, y, k);
        for (int j = 0; j < TOGETHER; j++) {
            const size_t at = SEED_BYTES * (key + LANES * j);
            const V_CHOICE corrected = V_CHOOSE(V_LOAD(state + at), turn);
            const VEC seed = V_XOR_WHERE(corrected, x[j], V_LOAD(seeds + at));
            V_STORE(left + at, V_ENCLAST(y[LEFT][j], V_XOR(seed, k[LEFT][LAST])));
            V_STORE(state + at, V_ENCLAST(y[RIGHT][j], V_XOR(seed, k[RIGHT][LAST])));
            sum = V_ADD(sum, V_ENCLAST(y[VALUE][j], V_XOR(x[j], k[VALUE][LAST])));
            sum = V_ADD_WHERE(corrected, sum, NAME(blocks)(words, key + LANES * j, word_bytes));
        }
    }
    return NAME(low_words)(sum);
}

/* The values of a node and of both its children, added up, where nothing below is needed:
 * children never leave the registers. `next_words` correct the values of the children's level. */
FN void NAME(last_sums)(const uint8_t *state, int turn, const VEC (*k)[ROUND_KEYS],
                        const uint8_t *seeds, const uint8_t *words, const uint8_t *next_words,
                        int word_bytes, uint64_t *sums, size_t count)
{
    enum { LAST = ROUND_KEYS - 1 };
    VEC sum = V_PAIR(0, 0), below[2] = {sum, sum};
    for (size_t key = 0; key < count; key += TOGETHER * LANES) {
        VEC x[TOGETHER], y[USAGES][TOGETHER], child[2 * TOGETHER];
        for (int j = 0; j < TOGETHER; j++)
            x[j] = NAME(sigma)(NAME(clear)(V_LOAD(state + SEED_BYTES * (key + LANES * j))));
        NAME(hash_usages_but_last)(x, y, k);
        for (int j = 0; j < TOGETHER; j++) {
            const size_t at = SEED_BYTES * (key + LANES * j);
            const V_CHOICE corrected = V_CHOOSE(V_LOAD(state + at), turn);
            const VEC seed = V_XOR_WHERE(corrected, x[j], V_LOAD(seeds + at));
            child[2 * j] = V_ENCLAST(y[LEFT][j], V_XOR(seed, k[LEFT][LAST]));
            child[2 * j + 1] = V_ENCLAST(y[RIGHT][j], V_XOR(seed, k[RIGHT][LAST]));
            sum = V_ADD(sum, V_ENCLAST(y[VALUE][j], V_XOR(x[j], k[VALUE][LAST])));
            sum = V_ADD_WHERE(corrected, sum, NAME(blocks)(words, key + LANES * j, word_bytes));
        }
        for (int j = 0; j < 2 * TOGETHER; j++) {
            const VEC word = NAME(blocks)(next_words, key + LANES * (j / 2), word_bytes);
            below[j % 2] = V_ADD_WHERE(V_CHOOSE(child[j], j % 2), below[j % 2], word);
            child[j] = NAME(clear)(child[j]);
        }
        NAME(hash)(child, 2 * TOGETHER, k[VALUE]);
        for (int j = 0; j < 2 * TOGETHER; j++)
            below[j % 2] = V_ADD(below[j % 2], child[j]);
    }
    sums[0] = NAME(low_words)(sum);
    sums[1] = NAME(low_words)(below[LEFT]);
    sums[2] = NAME(low_words)(below[RIGHT]);
}
