/* One block a vector: AES-NI. */
#define VEC __m128i
#define LANES 1
#define TOGETHER 2 /* vectors whose hashes under several keys fit into registers */
#define TARGET __attribute__((target("aes,pclmul,sse4.1,ssse3")))
#define FN static inline __attribute__((always_inline, target("aes,pclmul,sse4.1,ssse3")))
#define ENTRY static TARGET
#define NAME(x) x##_aesni

#define V_LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define V_STORE(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define V_XOR _mm_xor_si128
#define V_AND _mm_and_si128
#define V_ANDNOT _mm_andnot_si128
#define V_OR _mm_or_si128
#define V_ADD _mm_add_epi64
#define V_SUB _mm_sub_epi64
#define V_ENC _mm_aesenc_si128
#define V_ENCLAST _mm_aesenclast_si128
#define V_BROADCAST(x) (x)
#define V_PAIR(lo, hi) _mm_set_epi64x(hi, lo)
#define V_SWAP(x) _mm_shuffle_epi32(x, 0x4e)
#define V_COUNT _mm_setzero_si128()
#define V_BIG_ENDIAN(x)                                                            \
    _mm_shuffle_epi8(x, _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, 15, 14, 13, 12, 11, 10, 9, 8))
/* Bit `31 - shift` of every block, spread over the block. */
#define V_SPREAD(x, shift) _mm_srai_epi32(_mm_sll_epi32(_mm_shuffle_epi32(x, 0), shift), 31)
/* Masks of the blocks whose bit `bit` is set, and operations on those blocks only. */
#define V_CHOICE VEC
#define V_CHOOSE(x, bit) V_SPREAD(x, _mm_cvtsi32_si128(31 - (bit)))
#define V_XOR_WHERE(choice, a, b) V_XOR(a, V_AND(choice, b))
#define V_ADD_WHERE(choice, a, b) V_ADD(a, V_AND(choice, b))
/* The low, or high, words of two vectors' blocks, in the order of the keys. */
#define V_LOWS(a, b) _mm_unpacklo_epi64(a, b)
#define V_HIGHS(a, b) _mm_unpackhi_epi64(a, b)
#define V_SHIFT_RIGHT _mm_srl_epi64
#define V_SHIFT_LEFT _mm_sll_epi64
/* Words of consecutive keys, widened to 64 bits. */
#define V_WORDS64(p) V_LOAD(p)
#define V_WORDS32(p) _mm_cvtepu32_epi64(_mm_loadl_epi64((const __m128i *)(p)))
/* The word of a key at the low end of its block. */
#define V_BLOCKS64(p) _mm_loadl_epi64((const __m128i *)(p))
#define V_BLOCKS32(p) _mm_loadu_si32(p)
#define V_SELECT(mask, yes, no) _mm_blendv_epi8(no, yes, mask)
/* Parts of the product of 64-bit words: of the low halves, and of halves modulo 2^32. */
#define V_PRODUCT_OF_LOWS _mm_mul_epu32
#define V_PRODUCTS_OF_HALVES _mm_mullo_epi32
#define V_SWAP_HALVES(x) _mm_shuffle_epi32(x, 0xb1)
#define V_HIGH_HALF(x) _mm_srli_epi64(x, 32)
#define V_TO_HIGH_HALF(x) _mm_slli_epi64(x, 32)
/* Carry-less product of one word of a with one of b; the immediate says which. */
#define V_CLMUL(a, b, which) _mm_clmulepi64_si128(a, b, which)
