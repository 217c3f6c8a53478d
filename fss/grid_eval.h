/* Evaluation of grid keys, and what the servers compare of them; included after verified_eval.h,
 * once for each instruction set.
 *
 * All nodes of the level that has the proofs are visited, depth first, and stretched to words.
 * Added up over keys, the words give the sums of the leaves; added up over nodes, they are compared
 * with the key's low part. */

/* The sum of the blocks' high words. */
FN uint64_t NAME(high_words)(VEC v)
{
    return NAME(low_words)(V_SWAP(v));
}

/* Adds a node's proofs to the prints, and its words to the sums of its leaves and of its keys. */
FN void NAME(grid_node)(NAME(verified_walk) *w, const uint8_t *from, size_t node)
{
    enum { VECTORS = 2, FIELD = CHUNK * SEED_BYTES };
    verified_evaluation *e = w->e;
    const uint8_t *proofs = e->scratch + FIELD * (size_t)(e->levels + 1);
    const uint8_t *words = proofs + 2 * FIELD;
    const uint64_t *weights = e->weights + NODE_WEIGHTS * node;
    const VEC w0 = V_PAIR((long long)weights[0], (long long)weights[1]);
    const VEC w1 = V_PAIR((long long)weights[2], (long long)weights[3]);
    VEC sums[WORD_BLOCKS] = {V_PAIR(0, 0), V_PAIR(0, 0), V_PAIR(0, 0), V_PAIR(0, 0)};
    for (size_t key = 0; key < w->lanes; key += VECTORS * LANES) {
        VEC s[VECTORS], v[2 * VECTORS], x[WORD_BLOCKS * VECTORS];
        for (int j = 0; j < VECTORS; j++) {
            s[j] = V_LOAD(from + SEED_BYTES * (key + LANES * j));
            for (int n = 0; n < WORD_BLOCKS; n++)
                x[WORD_BLOCKS * j + n] = V_XOR(s[j], V_PAIR(2 * n, 0));
        }
        NAME(hash_under)(s, VECTORS, v, (const VEC(*)[ROUND_KEYS])(w->k + 1), 2);
        NAME(hash)(x, WORD_BLOCKS * VECTORS, w->k[WORDS_USAGE]);
        for (int j = 0; j < VECTORS; j++) {
            const size_t at = SEED_BYTES * (key + LANES * j);
            const V_CHOICE corrected = V_CHOOSE(s[j], 0);
            const VEC valid = V_LOAD(e->valid + at);
            const VEC a = V_XOR_WHERE(corrected, v[j], V_LOAD(proofs + at));
            const VEC b = V_XOR_WHERE(corrected, v[VECTORS + j], V_LOAD(proofs + FIELD + at));
            VEC print = V_LOAD(e->prints + at);
            print = V_XOR(print, V_XOR(V_CLMUL(a, w0, 0x00), V_CLMUL(a, w0, 0x11)));
            print = V_XOR(print, V_XOR(V_CLMUL(b, w1, 0x00), V_CLMUL(b, w1, 0x11)));
            V_STORE(e->prints + at, print);
            for (int n = 0; n < WORD_BLOCKS; n++) {
                uint8_t *own = e->words + FIELD * (size_t)n + at;
                VEC value = V_ADD_WHERE(corrected, x[WORD_BLOCKS * j + n],
                                        V_LOAD(words + FIELD * (size_t)n + at));
                V_STORE(own, V_ADD(V_LOAD(own), value));
                sums[n] = V_ADD(sums[n], V_AND(value, valid));
            }
        }
    }
    uint64_t *to = e->sums + 2 * WORD_BLOCKS * node;
    for (int n = 0; n < WORD_BLOCKS; n++) {
        to[2 * n] += NAME(low_words)(sums[n]);
        to[2 * n + 1] += NAME(high_words)(sums[n]);
    }
}

/* A leaf of the low part: adds its proof to the prints and its value to the totals, and subtracts
 * its value from the word that must equal it. */
FN void NAME(grid_low_leaf)(NAME(verified_walk) *w, const uint8_t *from, size_t leaf)
{
    verified_evaluation *e = w->e;
    const uint8_t *words = e->scratch + CHUNK * SEED_BYTES * (size_t)(state_block(LOW_BITS) + 1);
    const uint8_t *proofs = words + CHUNK * SEED_BYTES;
    const uint64_t *weights = e->weights + NODE_WEIGHTS * leaf;
    const VEC w0 = V_PAIR((long long)weights[0], 0);
    const VEC w1 = V_PAIR((long long)weights[1], (long long)weights[2]);
    uint8_t *own = e->words + CHUNK * SEED_BYTES * (leaf / 2);
    for (size_t key = 0; key < w->lanes; key += 4 * LANES) {
        VEC s[4], v[8];
        for (int j = 0; j < 4; j++)
            s[j] = V_LOAD(from + SEED_BYTES * (key + LANES * j));
        NAME(hash_under)(s, 4, v, (const VEC(*)[ROUND_KEYS])(w->k + 1), 2);
        for (int j = 0; j < 4; j++) {
            const size_t at = SEED_BYTES * (key + LANES * j);
            VEC print = V_LOAD(e->prints + at);
            VEC value = NAME(verified_node)(s[j], v[j], v[4 + j], words + at, proofs + at, w0, w1,
                                            &print);
            V_STORE(e->prints + at, print);
            value = V_AND(value, V_PAIR(-1, 0));
            V_STORE(e->totals + at, V_ADD(V_LOAD(e->totals + at), value));
            if (leaf % 2)
                value = V_SWAP(value);
            V_STORE(own + at, V_SUB(V_LOAD(own + at), value));
        }
    }
}

/* Visits the node with this prefix and state, and all nodes below it. */
ENTRY void NAME(grid_descend)(NAME(verified_walk) *w, uint8_t *state, int level, size_t prefix,
                              int low)
{
    if (level == (low ? LOW_BITS : w->e->levels)) {
        if (low)
            NAME(grid_low_leaf)(w, state, prefix);
        else
            NAME(grid_node)(w, state, prefix);
        return;
    }
    NAME(verified_children)(w, state, low ? state_block(level + 1) : level + 1);
    NAME(grid_descend)(w, state + CHUNK * SEED_BYTES, level + 1, 2 * prefix, low);
    NAME(grid_descend)(w, state, level + 1, 2 * prefix + 1, low);
}

/* Adds the differences between words, which must be the same at both servers, to the prints. */
FN void NAME(grid_words)(NAME(verified_walk) *w, const uint64_t *weights)
{
    verified_evaluation *e = w->e;
    for (size_t n = 0; n < WORD_BLOCKS; n++) {
        const VEC weight = V_PAIR((long long)weights[2 * n], (long long)weights[2 * n + 1]);
        for (size_t key = 0; key < w->lanes; key += LANES) {
            const size_t at = SEED_BYTES * key;
            const VEC x = V_LOAD(e->words + CHUNK * SEED_BYTES * n + at);
            const VEC products = V_XOR(V_CLMUL(x, weight, 0x00), V_CLMUL(x, weight, 0x11));
            V_STORE(e->prints + at, V_XOR(V_LOAD(e->prints + at), products));
        }
    }
}

ENTRY void NAME(grid_chunk)(verified_evaluation *e)
{
    NAME(verified_walk) w = {.e = e};
    const uint8_t *const scratch = e->scratch;
    const uint64_t *const weights = e->weights;
    NAME(verified_start)(&w, GRID_USAGES);
    memset(e->words, 0, sizeof e->words);
    NAME(grid_descend)(&w, e->state, 0, 0, 0);
    NAME(verified_corrections)(&w);
    e->scratch = scratch + CHUNK * SEED_BYTES * (size_t)(e->levels + LOW_OFFSET);
    e->weights = weights + ((size_t)NODE_WEIGHTS << e->levels);
    memcpy(e->state, e->scratch, CHUNK * SEED_BYTES);
    NAME(grid_descend)(&w, e->state, 0, 0, 1);
    NAME(grid_words)(&w, e->weights + (NODE_WEIGHTS << LOW_BITS));
    e->scratch = scratch;
    e->weights = weights;
}
