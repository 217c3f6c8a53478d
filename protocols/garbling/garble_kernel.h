/* Garbling and evaluation over vectors of instances. Included once for each instruction set, after
 * its lanes_*.h, with V_LANE(v, lane) one block of a vector and V_LANES(a) the vector of the blocks
 * at LANES addresses. A lane is an instance; all lanes of a call belong to one link, hence one key.
 *
 * Every choice between two values is a mask, never a branch or an address: time depends on the
 * circuit and on counts, not on labels. */

/* H(x, t) = π(π(x) ⊕ t) ⊕ π(x) of `n` vectors in place; n is a constant at every call. */
FN void NAME(encrypt)(VEC *x, int n, const VEC *k)
{
    for (int j = 0; j < n; j++)
        x[j] = V_XOR(x[j], k[0]);
#pragma GCC unroll 9
    for (int r = 1; r < ROUND_KEYS - 1; r++)
        for (int j = 0; j < n; j++)
            x[j] = V_ENC(x[j], k[r]);
    for (int j = 0; j < n; j++)
        x[j] = V_ENCLAST(x[j], k[ROUND_KEYS - 1]);
}

FN void NAME(tweaked)(VEC *x, const VEC *tweak, int n, const VEC *k)
{
    VEC inner[8];
    NAME(encrypt)(x, n, k);
    for (int j = 0; j < n; j++) {
        inner[j] = x[j];
        x[j] = V_XOR(x[j], tweak[j]);
    }
    NAME(encrypt)(x, n, k);
    for (int j = 0; j < n; j++)
        x[j] = V_XOR(x[j], inner[j]);
}

FN void NAME(spread_key)(VEC *k, const uint8_t *key)
{
    schedule s;
    expand_key(&s, key);
    for (int r = 0; r < ROUND_KEYS; r++)
        k[r] = V_BROADCAST(s.k[r]);
}

/* The colour bit of every block, spread over the block. */
FN VEC NAME(colour)(VEC x)
{
    return V_SPREAD(x, _mm_cvtsi32_si128(31));
}

FN VEC NAME(tweak)(uint64_t low, uint64_t instance)
{
    return V_ADD(V_PAIR((long long)low, (long long)instance), V_COUNT);
}

/* `n` half gates of one AND, for n vectors of instances: Zahur, Rosulek, Evans 2015, Figure 2. */
FN void NAME(garble_and)(int n, const VEC *k, VEC delta, const VEC *a, const VEC *b, VEC *c,
                         uint64_t gate, uint64_t first, uint8_t *const *tables)
{
    VEC x[8], t[8];
    for (int v = 0; v < n; v++) {
        const VEC even = NAME(tweak)(2 * gate, first + (uint64_t)v * LANES);
        const VEC odd = V_ADD(even, V_PAIR(1, 0));
        x[4 * v] = a[v];
        x[4 * v + 1] = V_XOR(a[v], delta);
        x[4 * v + 2] = b[v];
        x[4 * v + 3] = V_XOR(b[v], delta);
        t[4 * v] = t[4 * v + 1] = even;
        t[4 * v + 2] = t[4 * v + 3] = odd;
    }
    NAME(tweaked)(x, t, 4 * n, k);
    for (int v = 0; v < n; v++) {
        const VEC *h = x + 4 * v;
        const VEC pa = NAME(colour)(a[v]), pb = NAME(colour)(b[v]);
        const VEC row_g = V_XOR(V_XOR(h[0], h[1]), V_AND(pb, delta));
        const VEC difference = V_XOR(h[2], h[3]);
        const VEC row_e = V_XOR(difference, a[v]);
        c[v] = V_XOR(V_XOR(h[0], V_AND(pa, row_g)), V_XOR(h[2], V_AND(pb, difference)));
        for (int lane = 0; lane < LANES; lane++) {
            uint8_t *to = tables[v * LANES + lane] + 32 * gate;
            _mm_storeu_si128((__m128i *)to, V_LANE(row_g, lane));
            _mm_storeu_si128((__m128i *)(to + 16), V_LANE(row_e, lane));
        }
    }
}

FN void NAME(evaluate_and)(int n, const VEC *k, const VEC *a, const VEC *b, VEC *c, uint64_t gate,
                           uint64_t first, uint8_t *const *tables)
{
    VEC x[8], t[8];
    for (int v = 0; v < n; v++) {
        t[2 * v] = NAME(tweak)(2 * gate, first + (uint64_t)v * LANES);
        t[2 * v + 1] = V_ADD(t[2 * v], V_PAIR(1, 0));
        x[2 * v] = a[v];
        x[2 * v + 1] = b[v];
    }
    NAME(tweaked)(x, t, 2 * n, k);
    for (int v = 0; v < n; v++) {
        uint8_t *const *rows = tables + v * LANES;
        const VEC row_g = V_LANES(rows, 32 * gate), row_e = V_LANES(rows, 32 * gate + 16);
        const VEC half_g = V_XOR(x[2 * v], V_AND(NAME(colour)(a[v]), row_g));
        const VEC half_e =
            V_XOR(x[2 * v + 1], V_AND(NAME(colour)(b[v]), V_XOR(row_e, a[v])));
        c[v] = V_XOR(half_g, half_e);
    }
}

/* All gates for `n` vectors; wires are n vectors apart. `delta` is zero for the evaluator, whose
 * NOT gates keep the label. */
FN void NAME(walk)(int n, const garbling *g, const VEC *k, VEC delta, VEC *wires, uint64_t first,
                   uint8_t *const *tables)
{
    const int garble_step = n < 2 ? n : 2, evaluate_step = n < 4 ? n : 4;
    VEC *c = wires + (size_t)n * g->inputs;
    uint64_t ands = 0;
    for (size_t i = 0; i < g->gates_count; i++, c += n) {
        const uint32_t *gate = g->gates + 3 * i;
        const VEC *a = wires + (size_t)n * gate[1], *b = wires + (size_t)n * gate[2];
        if (gate[0] == GATE_XOR) {
            for (int v = 0; v < n; v++)
                c[v] = V_XOR(a[v], b[v]);
        } else if (gate[0] == GATE_NOT) {
            for (int v = 0; v < n; v++)
                c[v] = V_XOR(a[v], delta);
        } else {
            if (g->deltas)
                for (int v = 0; v < n; v += garble_step)
                    NAME(garble_and)(garble_step, k, delta, a + v, b + v, c + v, ands,
                                     first + (uint64_t)v * LANES, tables + v * LANES);
            else
                for (int v = 0; v < n; v += evaluate_step)
                    NAME(evaluate_and)(evaluate_step, k, a + v, b + v, c + v, ands,
                                       first + (uint64_t)v * LANES, tables + v * LANES);
            ands++;
        }
    }
}

/* One link, all instances. `scratch` has room for VECTORS vectors a wire, `spare` for one
 * instance's inputs, table and outputs: lanes without an instance work there. */
ENTRY void NAME(run_link)(const garbling *g, size_t link, void *scratch, uint8_t *spare)
{
    VEC k[ROUND_KEYS], *wires = scratch;
    NAME(spread_key)(k, g->keys + link * BLOCK);
    const VEC delta = g->deltas
        ? V_BROADCAST(_mm_loadu_si128((const __m128i *)(g->deltas + link * BLOCK)))
        : V_PAIR(0, 0);
    const size_t in = g->inputs * BLOCK, table = g->ands * 2 * BLOCK, out = g->outputs_count * BLOCK;
    for (size_t first = 0; first < g->instances;) {
        const size_t left = g->instances - first;
        const int n = left > 2 * LANES ? VECTORS : left > LANES ? 2 : 1;
        uint8_t *from[VECTORS * LANES], *tables[VECTORS * LANES], *to[VECTORS * LANES];
        for (size_t lane = 0; lane < (size_t)n * LANES; lane++) {
            const size_t row = link * g->instances + first + lane;
            const int real = lane < left;
            from[lane] = real ? (uint8_t *)g->labels + row * in : spare;
            tables[lane] = real ? g->tables + row * table : spare + in;
            to[lane] = real ? g->out + row * out : spare + in + table;
        }
        for (size_t w = 0; w < g->inputs; w++)
            for (int v = 0; v < n; v++)
                wires[w * n + v] = V_LANES(from + v * LANES, w * BLOCK);
        switch (n) {
        case 1: NAME(walk)(1, g, k, delta, wires, first, tables); break;
        case 2: NAME(walk)(2, g, k, delta, wires, first, tables); break;
        default: NAME(walk)(VECTORS, g, k, delta, wires, first, tables);
        }
        for (size_t o = 0; o < g->outputs_count; o++)
            for (int v = 0; v < n; v++)
                for (int lane = 0; lane < LANES; lane++)
                    _mm_storeu_si128((__m128i *)(to[v * LANES + lane] + o * BLOCK),
                                     V_LANE(wires[(size_t)g->outputs[o] * n + v], lane));
        first += (size_t)n * LANES;
    }
}

/* H of `count` blocks under one key; block j has the tweak (j, domain). */
ENTRY void NAME(hash_link)(const uint8_t *key, const uint8_t *blocks, size_t count, uint64_t domain,
                           uint8_t *out)
{
    enum { STEP = 4 };
    VEC k[ROUND_KEYS], x[STEP], t[STEP];
    NAME(spread_key)(k, key);
    for (size_t done = 0; done < count; done += STEP * LANES) {
        uint8_t buffer[STEP * LANES * BLOCK] = {0};
        const size_t left = count - done;
        const size_t bytes = (left < STEP * LANES ? left : STEP * LANES) * BLOCK;
        memcpy(buffer, blocks + done * BLOCK, bytes);
        for (int j = 0; j < STEP; j++) {
            uint64_t tweaks[2 * LANES];
            for (int lane = 0; lane < LANES; lane++) {
                tweaks[2 * lane] = done + (size_t)j * LANES + lane;
                tweaks[2 * lane + 1] = domain;
            }
            t[j] = V_LOAD(tweaks);
            x[j] = V_LOAD(buffer + j * LANES * BLOCK);
        }
        NAME(tweaked)(x, t, STEP, k);
        for (int j = 0; j < STEP; j++)
            V_STORE(buffer + j * LANES * BLOCK, x[j]);
        memcpy(out + done * BLOCK, buffer, bytes);
    }
}

/* AES-CTR from block `start` on; the counter is a 128-bit big-endian number below 2^64. */
ENTRY void NAME(keystream)(const uint8_t *seed, uint64_t start, size_t blocks, uint8_t *out)
{
    enum { STEP = 4 };
    VEC k[ROUND_KEYS], x[STEP];
    VEC counter = V_ADD(V_COUNT, V_PAIR(0, (long long)start));
    NAME(spread_key)(k, seed);
    for (size_t done = 0; done < blocks; done += STEP * LANES) {
        for (int j = 0; j < STEP; j++) {
            x[j] = V_BIG_ENDIAN(counter);
            counter = V_ADD(counter, V_PAIR(0, LANES));
        }
        NAME(encrypt)(x, STEP, k);
        const size_t left = blocks - done;
        if (left >= STEP * LANES) {
            for (int j = 0; j < STEP; j++)
                V_STORE(out + (done + (size_t)j * LANES) * BLOCK, x[j]);
        } else {
            uint8_t buffer[STEP * LANES * BLOCK];
            for (int j = 0; j < STEP; j++)
                V_STORE(buffer + j * LANES * BLOCK, x[j]);
            memcpy(out + done * BLOCK, buffer, left * BLOCK);
        }
    }
}
