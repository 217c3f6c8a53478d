/* Square-root keys: one server's share at every column of some rows, added over keys.
 * Included once for each instruction set, like lanes.h. Words are of Z_2^64. */

/* The low 64 bits of the products of 64-bit words. */
FN VEC NAME(multiply)(VEC a, VEC b)
{
    const VEC cross = V_PRODUCTS_OF_HALVES(a, V_SWAP_HALVES(b));
    return V_ADD(V_PRODUCT_OF_LOWS(a, b), V_TO_HIGH_HALF(V_ADD(cross, V_HIGH_HALF(cross))));
}

/* One row of `square_root.py`: out[c] += Σ coefficient·(W_slot[c] + G(seed)[c]) over its entries.
 * `columns` is a multiple of 2·LANES·GROUP. The caller has checked the slots' numbers. */
ENTRY void NAME(square_root_row)(const schedule *key, const uint8_t *entries, const uint8_t *vectors,
                                 size_t columns, uint64_t *out)
{
    enum { STEP = 2 * LANES * GROUP };
    VEC k[ROUND_KEYS];
    NAME(broadcast)(k, key);
    for (size_t c = 0; c < columns; c += STEP) {
        VEC total[GROUP];
        for (int j = 0; j < GROUP; j++)
            total[j] = V_LOAD(out + c + 2 * LANES * j);
        for (int e = 0; e < HELD_SLOTS; e++) {
            const uint8_t *entry = entries + e * ENTRY_BYTES;
            const uint8_t *vector = vectors + 8 * (entry[0] * columns + c);
            uint64_t low, high, coefficient;
            memcpy(&low, entry + 1, 8);
            memcpy(&high, entry + 9, 8);
            memcpy(&coefficient, entry + 17, 8);
            const VEC seed = V_PAIR((long long)low, (long long)high);
            const VEC factor = V_PAIR((long long)coefficient, (long long)coefficient);
            VEC x[GROUP], count = V_ADD(V_SWAP(V_COUNT), V_PAIR((long long)(c / 2), 0));
            for (int j = 0; j < GROUP; j++) {
                x[j] = V_XOR(seed, count);
                count = V_ADD(count, V_PAIR(LANES, 0));
            }
            NAME(hash)(x, GROUP, k);
            for (int j = 0; j < GROUP; j++) {
                x[j] = V_ADD(x[j], V_LOAD(vector + 16 * LANES * j));
                total[j] = V_ADD(total[j], NAME(multiply)(x[j], factor));
            }
        }
        for (int j = 0; j < GROUP; j++)
            V_STORE(out + c + 2 * LANES * j, total[j]);
    }
}
