/* Two blocks a vector: VAES on 256 bits. */
#define VEC __m256i
#define LANES 2
#define TOGETHER 2 /* vectors whose hashes under several keys fit into registers */
#define TARGET __attribute__((target("aes,pclmul,avx2,vaes,vpclmulqdq")))
#define FN static inline __attribute__((always_inline, target("aes,pclmul,avx2,vaes,vpclmulqdq")))
#define ENTRY static TARGET
#define NAME(x) x##_vaes

#define V_LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define V_STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define V_XOR _mm256_xor_si256
#define V_AND _mm256_and_si256
#define V_ANDNOT _mm256_andnot_si256
#define V_OR _mm256_or_si256
#define V_ADD _mm256_add_epi64
#define V_SUB _mm256_sub_epi64
#define V_ENC _mm256_aesenc_epi128
#define V_ENCLAST _mm256_aesenclast_epi128
#define V_BROADCAST(x) _mm256_broadcastsi128_si256(x)
#define V_PAIR(lo, hi) _mm256_set_epi64x(hi, lo, hi, lo)
#define V_SWAP(x) _mm256_shuffle_epi32(x, 0x4e)
#define V_COUNT _mm256_set_epi64x(1, 0, 0, 0)
#define V_BIG_ENDIAN(x)                                                            \
    _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(_mm_setr_epi8(              \
                               -1, -1, -1, -1, -1, -1, -1, -1, 15, 14, 13, 12, 11, 10, 9, 8)))
/* Bit `31 - shift` of every block, spread over the block. */
#define V_SPREAD(x, shift) _mm256_srai_epi32(_mm256_sll_epi32(_mm256_shuffle_epi32(x, 0), shift), 31)
/* Masks of the blocks whose bit `bit` is set, and operations on those blocks only. */
#define V_CHOICE VEC
#define V_CHOOSE(x, bit) V_SPREAD(x, _mm_cvtsi32_si128(31 - (bit)))
#define V_XOR_WHERE(choice, a, b) V_XOR(a, V_AND(choice, b))
#define V_ADD_WHERE(choice, a, b) V_ADD(a, V_AND(choice, b))
/* The low, or high, words of two vectors' blocks, in the order of the keys. */
#define V_LOWS(a, b) _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(a, b), 0xd8)
#define V_HIGHS(a, b) _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(a, b), 0xd8)
#define V_SHIFT_RIGHT _mm256_srl_epi64
#define V_SHIFT_LEFT _mm256_sll_epi64
/* Words of consecutive keys, widened to 64 bits. */
#define V_WORDS64(p) V_LOAD(p)
#define V_WORDS32(p) _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(p)))
/* The words of LANES keys, each at the low end of its key's block; the high ends are not zero. */
#define V_BLOCKS64(p)                                                              \
    _mm256_permute4x64_epi64(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(p))), 0x50)
#define V_BLOCKS32(p)                                                              \
    _mm256_permute4x64_epi64(                                                      \
        _mm256_castsi128_si256(_mm_cvtepu32_epi64(_mm_loadl_epi64((const __m128i *)(p)))), 0x50)
#define V_SELECT(mask, yes, no) _mm256_blendv_epi8(no, yes, mask)
/* Parts of the product of 64-bit words: of the low halves, and of halves modulo 2^32. */
#define V_PRODUCT_OF_LOWS _mm256_mul_epu32
#define V_PRODUCTS_OF_HALVES _mm256_mullo_epi32
#define V_SWAP_HALVES(x) _mm256_shuffle_epi32(x, 0xb1)
#define V_HIGH_HALF(x) _mm256_srli_epi64(x, 32)
#define V_TO_HIGH_HALF(x) _mm256_slli_epi64(x, 32)
/* Carry-less product of one word of a with one of b; the immediate says which. */
#define V_CLMUL(a, b, which) _mm256_clmulepi64_epi128(a, b, which)
