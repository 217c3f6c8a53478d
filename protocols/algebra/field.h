/* Two prime fields p = B² − kB + 1: B = 2^32, k = 1 and B = 2^64, k = 28 (protocols/algebra/field.py).
 *
 * Elements are canonical integers below p, little-endian in memory. From B² = kB − 1 and
 * B³ = (k² − 1)B − k a product folds to two digits without division. No branch and no address
 * depends on an element. */
#ifndef TALLYROOM_FIELD_H
#define TALLYROOM_FIELD_H

#include <stdint.h>
#include <string.h>

typedef unsigned __int128 u128;
typedef __int128 i128;

typedef uint64_t f64;
typedef u128 f128;

#define F64_P UINT64_C(0xffffffff00000001)
#define F128_HIGH UINT64_C(0xffffffffffffffe4)
#define F128_P (((u128)F128_HIGH << 64) | 1)

static inline f64 f64_load(const void *at)
{
    f64 a;
    memcpy(&a, at, sizeof a);
    return a;
}

static inline void f64_store(void *at, f64 a) { memcpy(at, &a, sizeof a); }

/* a < 2^64 to a < p. */
static inline f64 f64_reduce(f64 a) { return a - (F64_P & -(uint64_t)(a >= F64_P)); }

static inline f64 f64_add(f64 a, f64 b)
{
    const u128 sum = (u128)a + b;
    return (uint64_t)sum - (F64_P & -(uint64_t)(sum >= F64_P));
}

static inline f64 f64_sub(f64 a, f64 b) { return a - b + (F64_P & -(uint64_t)(a < b)); }

static inline f64 f64_mul(f64 a, f64 b)
{
    const u128 product = (u128)a * b;
    const uint64_t low = (uint64_t)product, high = (uint64_t)(product >> 64);
    const uint64_t h0 = (uint32_t)high, h1 = high >> 32;
    /* low + h0·(2^32 − 1) − h1; leaving 2^64 either way is worth 2^32 − 1. */
    uint64_t r = low - h1;
    r -= -(uint64_t)(low < h1) & UINT32_MAX;
    const uint64_t middle = (h0 << 32) - h0, s = r + middle;
    return f64_reduce(s + (-(uint64_t)(s < middle) & UINT32_MAX));
}

static inline f128 f128_load(const void *at)
{
    f128 a;
    memcpy(&a, at, sizeof a);
    return a;
}

static inline void f128_store(void *at, f128 a) { memcpy(at, &a, sizeof a); }

static inline u128 u128_mask(int bit) { return -(u128)bit; }

static inline f128 f128_reduce(f128 a) { return a - (F128_P & u128_mask(a >= F128_P)); }

static inline f128 f128_add(f128 a, f128 b)
{
    const u128 sum = a + b;
    return sum - (F128_P & u128_mask((sum < a) | (sum >= F128_P)));
}

static inline f128 f128_sub(f128 a, f128 b) { return a - b + (F128_P & u128_mask(a < b)); }

static inline f128 f128_mul(f128 a, f128 b)
{
    const uint64_t a0 = (uint64_t)a, a1 = (uint64_t)(a >> 64);
    const uint64_t b0 = (uint64_t)b, b1 = (uint64_t)(b >> 64);
    const u128 low = (u128)a0 * b0, high = (u128)a1 * b1;
    const u128 cross = (u128)a0 * b1, other = (u128)a1 * b0;
    const u128 middle = (low >> 64) + (uint64_t)cross + (uint64_t)other;
    const u128 top = high + (cross >> 64) + (other >> 64) + (middle >> 64);
    const uint64_t l0 = (uint64_t)low, l1 = (uint64_t)middle;
    const uint64_t h0 = (uint64_t)top, h1 = (uint64_t)(top >> 64);
    /* Digit 0 is above −29·2^64; digit 1 is below 813·2^64 and makes up for any borrow. */
    const i128 d0 = (i128)l0 - (i128)h0 - (i128)((u128)28 * h1);
    const u128 d1 = (u128)l1 + (u128)28 * h0 + (u128)783 * h1 + (u128)(d0 >> 64);
    const uint64_t over = (uint64_t)(d1 >> 64);
    const u128 folded = ((u128)(uint64_t)d1 << 64) | (uint64_t)d0;
    const u128 more = ((u128)(28 * over) << 64) - over;
    const u128 sum = folded + more;
    /* Past 2^128 once more: −p there is the fold, and leaves less than p. */
    return sum - (F128_P & u128_mask((sum < folded) | (sum >= F128_P)));
}

#endif
