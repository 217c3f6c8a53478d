/* Kernels over vectors of blocks. Included once for each instruction set, with
 *   VEC      the vector type, of LANES 128-bit blocks
 *   FN       storage class and target attribute
 *   NAME(x)  x with the instruction set's suffix
 * and the primitive operations V_*. A lane is a key (or a counter block), never a tree level. */

#define GROUP 8       /* vectors in flight: the latency of a round times the AES units */
#define LIMIT_GROUP 6 /* as many as stay in registers with their feed-forward */

FN VEC NAME(sigma)(VEC x)
{
    const VEC high = V_PAIR(0, -1);
    return V_XOR(V_SWAP(x), V_AND(x, high));
}

/* H of `n` vectors in place; n is a constant at every call, so the loops unroll. */
FN void NAME(hash)(VEC *x, int n, const VEC *k)
{
    VEC y[8];
    for (int j = 0; j < n; j++) {
        x[j] = NAME(sigma)(x[j]);
        y[j] = V_XOR(x[j], k[0]);
    }
#pragma GCC unroll 9
    for (int r = 1; r < ROUND_KEYS - 1; r++)
        for (int j = 0; j < n; j++)
            y[j] = V_ENC(y[j], k[r]);
    for (int j = 0; j < n; j++)
        x[j] = V_ENCLAST(y[j], V_XOR(x[j], k[ROUND_KEYS - 1]));
}

/* H of `n` vectors under `usages` keys each: out[u * n + j]. */
FN void NAME(hash_under)(const VEC *in, int n, VEC *out, const VEC (*k)[ROUND_KEYS], int usages)
{
    VEC s[16], y[16];
    for (int j = 0; j < n; j++)
        s[j] = NAME(sigma)(in[j]);
    for (int j = 0; j < usages * n; j++)
        y[j] = V_XOR(s[j % n], k[j / n][0]);
#pragma GCC unroll 9
    for (int r = 1; r < ROUND_KEYS - 1; r++)
        for (int j = 0; j < usages * n; j++)
            y[j] = V_ENC(y[j], k[j / n][r]);
    for (int j = 0; j < usages * n; j++)
        out[j] = V_ENCLAST(y[j], V_XOR(s[j % n], k[j / n][ROUND_KEYS - 1]));
}

FN void NAME(broadcast)(VEC *to, const schedule *from)
{
    for (int r = 0; r < ROUND_KEYS; r++)
        to[r] = V_BROADCAST(from->k[r]);
}

/* The sum of the blocks' low words. */
FN uint64_t NAME(low_words)(VEC v)
{
    uint64_t kept[2 * LANES], sum = 0;
    V_STORE(kept, v);
    for (int lane = 0; lane < LANES; lane++)
        sum += kept[2 * lane];
    return sum;
}

/* The limit that benchmarks compare with: H of independent blocks made in registers, so that
 * neither memory nor the latency of one block counts, only the AES units. */
ENTRY uint64_t NAME(hash_rounds)(const schedule *key, uint64_t rounds)
{
    VEC k[ROUND_KEYS], x[LIMIT_GROUP], counter = V_COUNT, folded = V_PAIR(0, 0);
    NAME(broadcast)(k, key);
    for (uint64_t i = 0; i < rounds; i++) {
        for (int j = 0; j < LIMIT_GROUP; j++) {
            x[j] = counter;
            counter = V_ADD(counter, V_PAIR(0, LANES));
        }
        NAME(hash)(x, LIMIT_GROUP, k);
        for (int j = 0; j < LIMIT_GROUP; j++)
            folded = V_XOR(folded, x[j]);
    }
    uint64_t kept[2 * LANES];
    V_STORE(kept, folded);
    volatile uint64_t sink = kept[0];
    (void)sink;
    return rounds * LIMIT_GROUP * LANES;
}

/* Keystream block i is AES(i as a 128-bit big-endian number); NIST SP 800-38A, section 6.5. */
FN void NAME(counter_blocks)(VEC *x, VEC *counter, const VEC *k)
{
    for (int j = 0; j < GROUP; j++) {
        x[j] = V_XOR(V_BIG_ENDIAN(*counter), k[0]);
        *counter = V_ADD(*counter, V_PAIR(0, LANES));
    }
    for (int r = 1; r < ROUND_KEYS - 1; r++)
        for (int j = 0; j < GROUP; j++)
            x[j] = V_ENC(x[j], k[r]);
    for (int j = 0; j < GROUP; j++)
        x[j] = V_ENCLAST(x[j], k[ROUND_KEYS - 1]);
}

/* Either one row of `words` for each seed, or (sum) all rows added into one. */
ENTRY void NAME(expand_seeds)(const uint8_t *seeds, size_t count, size_t words, uint64_t *out,
                              int sum)
{
    enum { STEP = 2 * LANES * GROUP };
    for (size_t s = 0; s < count; s++) {
        schedule key;
        VEC k[ROUND_KEYS], x[GROUP], counter = V_COUNT;
        uint64_t *row = sum ? out : out + s * words;
        expand_key(&key, seeds + s * SEED_BYTES);
        NAME(broadcast)(k, &key);
        size_t w = 0;
        for (; w + STEP <= words; w += STEP) {
            NAME(counter_blocks)(x, &counter, k);
            for (int j = 0; j < GROUP; j++) {
                uint64_t *to = row + w + 2 * LANES * j;
                V_STORE(to, sum ? V_ADD(V_LOAD(to), x[j]) : x[j]);
            }
        }
        if (w < words) {
            uint64_t tail[STEP];
            NAME(counter_blocks)(x, &counter, k);
            for (int j = 0; j < GROUP; j++)
                V_STORE(tail + 2 * LANES * j, x[j]);
            for (size_t i = 0; w + i < words; i++)
                row[w + i] = sum ? row[w + i] + tail[i] : tail[i];
        }
    }
}
