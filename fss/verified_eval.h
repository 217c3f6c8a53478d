/* Evaluation of verified keys, and the prints that servers compare; included after verified_gen.h,
 * once for each instruction set.
 *
 * Depth-first over the visited nodes, which come in preorder, a chunk of keys at a time. A node's
 * state is one block a key, its control bit in bit 0. A checked node adds, for each key, three
 * carry-less products of its proof with public weights to the key's print; a leaf adds its value
 * to the key's total and to the leaf's sum as well. Time depends on the nodes alone. */

typedef struct {
    verified_evaluation *e;
    VEC k[GRID_USAGES][ROUND_KEYS];
    size_t lanes;
} NAME(verified_walk);

/* One node for LANES keys: returns their values, and adds their proofs to their prints. */
FN VEC NAME(verified_node)(VEC state, VEC a, VEC b, const uint8_t *words, const uint8_t *proofs,
                           VEC w0, VEC w1, VEC *print)
{
    const V_CHOICE corrected = V_CHOOSE(state, 0);
    const VEC value = V_ADD_WHERE(corrected, a, V_LOAD(words));
    a = V_XOR_WHERE(corrected, a, V_LOAD(words));
    b = V_XOR_WHERE(corrected, b, V_LOAD(proofs));
    *print = V_XOR(V_XOR(*print, V_CLMUL(a, w0, 0x01)),
                   V_XOR(V_CLMUL(b, w1, 0x00), V_CLMUL(b, w1, 0x11)));
    return value;
}

/* Adds a node at `level` to prints, and a leaf's values to totals and to *sum. */
FN void NAME(verified_check)(NAME(verified_walk) *w, const uint8_t *from, int level, int leaf)
{
    enum { AT_ONCE = 4 };
    verified_evaluation *e = w->e;
    const uint8_t *words = e->scratch + CHUNK * SEED_BYTES * (size_t)(state_block(level) + 1);
    const uint8_t *proofs = words + CHUNK * SEED_BYTES;
    const uint64_t *weights = e->weights + NODE_WEIGHTS * e->next_check++;
    const VEC w0 = V_PAIR((long long)weights[0], 0);
    const VEC w1 = V_PAIR((long long)weights[1], (long long)weights[2]);
    VEC sum = V_PAIR(0, 0);
    for (size_t key = 0; key < w->lanes; key += AT_ONCE * LANES) {
        VEC s[AT_ONCE], v[2 * AT_ONCE];
        for (int j = 0; j < AT_ONCE; j++)
            s[j] = V_LOAD(from + SEED_BYTES * (key + LANES * j));
        NAME(hash_under)(s, AT_ONCE, v, (const VEC(*)[ROUND_KEYS])(w->k + 1), 2);
        for (int j = 0; j < AT_ONCE; j++) {
            const size_t at = SEED_BYTES * (key + LANES * j);
            VEC print = V_LOAD(e->prints + at);
            VEC value = NAME(verified_node)(s[j], v[j], v[AT_ONCE + j], words + at, proofs + at,
                                            w0, w1, &print);
            V_STORE(e->prints + at, print);
            if (leaf) {
                value = V_AND(value, V_LOAD(e->valid + at));
                V_STORE(e->totals + at, V_ADD(V_LOAD(e->totals + at), value));
                sum = V_ADD(sum, value);
            }
        }
    }
    if (leaf)
        e->sums[e->next_leaf++] += NAME(low_words)(sum);
}

/* Both children of a node, right in place and left in the next buffer; `block` corrects them. */
FN void NAME(verified_children)(NAME(verified_walk) *w, uint8_t *state, int block)
{
    enum { AT_ONCE = 8 };
    const uint8_t *corrections = w->e->scratch + CHUNK * SEED_BYTES * (size_t)block;
    for (size_t key = 0; key < w->lanes; key += AT_ONCE * LANES) {
        VEC x[AT_ONCE];
        for (int j = 0; j < AT_ONCE; j++)
            x[j] = V_LOAD(state + SEED_BYTES * (key + LANES * j));
        NAME(hash)(x, AT_ONCE, w->k[0]);
        for (int j = 0; j < AT_ONCE; j++) {
            const size_t at = SEED_BYTES * (key + LANES * j);
            const VEC parent = V_LOAD(state + at);
            const VEC left =
                V_XOR_WHERE(V_CHOOSE(parent, 0), x[j], V_LOAD(corrections + at));
            V_STORE(state + CHUNK * SEED_BYTES + at, left);
            V_STORE(state + at, V_XOR(left, parent));
        }
    }
}

/* A node whose two children are leaves at `level`: their states stay in registers. */
FN void NAME(verified_pair)(NAME(verified_walk) *w, const uint8_t *state, int level)
{
    verified_evaluation *e = w->e;
    const uint8_t *corrections = e->scratch + CHUNK * SEED_BYTES * (size_t)state_block(level);
    const uint8_t *words = corrections + CHUNK * SEED_BYTES, *proofs = words + CHUNK * SEED_BYTES;
    const uint64_t *weights = e->weights + NODE_WEIGHTS * e->next_check;
    const VEC w0 = V_PAIR((long long)weights[0], 0);
    const VEC w1 = V_PAIR((long long)weights[1], (long long)weights[2]);
    const VEC w2 = V_PAIR((long long)weights[4], 0);
    const VEC w3 = V_PAIR((long long)weights[5], (long long)weights[6]);
    VEC sums[2] = {V_PAIR(0, 0), V_PAIR(0, 0)};
    for (size_t key = 0; key < w->lanes; key += TOGETHER * LANES) {
        VEC s[2 * TOGETHER], v[4 * TOGETHER];
        for (int j = 0; j < TOGETHER; j++)
            s[j] = V_LOAD(state + SEED_BYTES * (key + LANES * j));
        NAME(hash_under)(s, TOGETHER, v, (const VEC(*)[ROUND_KEYS])w->k, 1);
        for (int j = 0; j < TOGETHER; j++) {
            const size_t at = SEED_BYTES * (key + LANES * j);
            const VEC left = V_XOR_WHERE(V_CHOOSE(s[j], 0), v[j], V_LOAD(corrections + at));
            s[TOGETHER + j] = V_XOR(left, s[j]);
            s[j] = left;
        }
        NAME(hash_under)(s, 2 * TOGETHER, v, (const VEC(*)[ROUND_KEYS])(w->k + 1), 2);
        for (int j = 0; j < TOGETHER; j++) {
            const size_t at = SEED_BYTES * (key + LANES * j);
            const VEC valid = V_LOAD(e->valid + at);
            VEC print = V_LOAD(e->prints + at);
            VEC left = NAME(verified_node)(s[j], v[j], v[2 * TOGETHER + j], words + at,
                                           proofs + at, w0, w1, &print);
            VEC right = NAME(verified_node)(s[TOGETHER + j], v[TOGETHER + j],
                                            v[3 * TOGETHER + j], words + at, proofs + at, w2, w3,
                                            &print);
            V_STORE(e->prints + at, print);
            left = V_AND(left, valid);
            right = V_AND(right, valid);
            V_STORE(e->totals + at, V_ADD(V_LOAD(e->totals + at), V_ADD(left, right)));
            sums[0] = V_ADD(sums[0], left);
            sums[1] = V_ADD(sums[1], right);
        }
    }
    e->next_check += 2;
    e->sums[e->next_leaf++] += NAME(low_words)(sums[0]);
    e->sums[e->next_leaf++] += NAME(low_words)(sums[1]);
}

/* The node that comes next in preorder, and all below it; its state is in `buffer`. */
ENTRY void NAME(verified_descend)(NAME(verified_walk) *w, size_t buffer, int level)
{
    verified_evaluation *e = w->e;
    uint8_t *state = e->state + buffer * CHUNK * SEED_BYTES;
    for (;; level++) {
        const int node = e->nodes[e->next_node++];
        if (node != INNER)
            NAME(verified_check)(w, state, level, node == LEAF);
        if (node == LEAF)
            return;
        if (e->nodes[e->next_node] == LEAF && e->nodes[e->next_node + 1] == LEAF) {
            NAME(verified_pair)(w, state, level + 1);
            e->next_node += 2;
            return;
        }
        NAME(verified_children)(w, state, state_block(level + 1));
        NAME(verified_descend)(w, buffer + 1, level + 1);
    }
}

/* Adds the corrections that were used to the prints: both servers must hold the same. */
FN void NAME(verified_corrections)(NAME(verified_walk) *w)
{
    verified_evaluation *e = w->e;
    for (int block = 1; block < e->blocks; block++) {
        const uint64_t *weights = e->correction_weights + 2 * (size_t)block;
        const VEC weight = V_PAIR((long long)weights[0], (long long)weights[1]);
        for (size_t key = 0; key < w->lanes; key += LANES) {
            const size_t at = SEED_BYTES * key;
            const VEC x = V_LOAD(e->scratch + CHUNK * SEED_BYTES * (size_t)block + at);
            const VEC products = V_XOR(V_CLMUL(x, weight, 0x00), V_CLMUL(x, weight, 0x11));
            V_STORE(e->prints + at, V_XOR(V_LOAD(e->prints + at), products));
        }
    }
}

/* Starts at the roots, with empty prints and totals. */
FN void NAME(verified_start)(NAME(verified_walk) *w, int usages)
{
    verified_evaluation *e = w->e;
    const size_t step = 8 * LANES;
    w->lanes = (e->count + step - 1) / step * step;
    for (int usage = 0; usage < usages; usage++)
        NAME(broadcast)(w->k[usage], &e->keys[usage]);
    e->next_node = e->next_check = e->next_leaf = 0;
    memset(e->prints, 0, sizeof e->prints);
    memset(e->totals, 0, sizeof e->totals);
    memcpy(e->state, e->scratch, CHUNK * SEED_BYTES);
}

ENTRY void NAME(verified_chunk)(verified_evaluation *e)
{
    NAME(verified_walk) w = {.e = e};
    NAME(verified_start)(&w, VERIFIED_USAGES);
    NAME(verified_descend)(&w, 0, 0);
    NAME(verified_corrections)(&w);
}
