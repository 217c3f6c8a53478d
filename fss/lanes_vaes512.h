/* Four blocks a vector: VAES on 512 bits, with twice as many registers. */
#define VEC __m512i
#define LANES 4
#define TOGETHER 4 /* vectors whose hashes under several keys fit into registers */
#define TARGET __attribute__((target("aes,pclmul,avx512f,avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq")))
#define FN                                                                         \
    static inline __attribute__((                                                  \
        always_inline,                                                             \
        target("aes,pclmul,avx512f,avx512bw,avx512dq,avx512vl,vaes,vpclmulqdq")))
#define ENTRY static TARGET
#define NAME(x) x##_vaes512

#define V_LOAD(p) _mm512_loadu_si512(p)
#define V_STORE(p, v) _mm512_storeu_si512(p, v)
#define V_XOR _mm512_xor_si512
#define V_AND _mm512_and_si512
#define V_ANDNOT _mm512_andnot_si512
#define V_OR _mm512_or_si512
#define V_ADD _mm512_add_epi64
#define V_SUB _mm512_sub_epi64
#define V_ENC _mm512_aesenc_epi128
#define V_ENCLAST _mm512_aesenclast_epi128
#define V_BROADCAST(x) _mm512_broadcast_i32x4(x)
#define V_PAIR(lo, hi) _mm512_set_epi64(hi, lo, hi, lo, hi, lo, hi, lo)
#define V_SWAP(x) _mm512_shuffle_epi32(x, 0x4e)
#define V_COUNT _mm512_set_epi64(3, 0, 2, 0, 1, 0, 0, 0)
#define V_BIG_ENDIAN(x)                                                            \
    _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_setr_epi8(                   \
                               -1, -1, -1, -1, -1, -1, -1, -1, 15, 14, 13, 12, 11, 10, 9, 8)))
/* Bit `31 - shift` of every block, spread over the block. */
#define V_SPREAD(x, shift) _mm512_srai_epi32(_mm512_sll_epi32(_mm512_shuffle_epi32(x, 0), shift), 31)
/* Masks of the blocks whose bit `bit` is set, and operations on those blocks only. */
#define V_CHOICE __mmask8
#define V_CHOOSE(x, bit)                                                           \
    _mm512_test_epi64_mask(_mm512_shuffle_epi32(x, 0), _mm512_set1_epi32(1 << (bit)))
#define V_XOR_WHERE(choice, a, b) _mm512_mask_xor_epi64(a, choice, a, b)
#define V_ADD_WHERE(choice, a, b) _mm512_mask_add_epi64(a, choice, a, b)
/* The low, or high, words of two vectors' blocks, in the order of the keys. */
#define V_LOWS(a, b) _mm512_permutex2var_epi64(a, _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0), b)
#define V_HIGHS(a, b) _mm512_permutex2var_epi64(a, _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1), b)
#define V_SHIFT_RIGHT _mm512_srl_epi64
#define V_SHIFT_LEFT _mm512_sll_epi64
/* Words of consecutive keys, widened to 64 bits. */
#define V_WORDS64(p) V_LOAD(p)
#define V_WORDS32(p) _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(p)))
/* The words of LANES keys, each at the low end of its key's block; the high ends are not zero. */
#define V_BLOCKS64(p)                                                              \
    _mm512_permutexvar_epi64(                                                      \
        _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0),                                  \
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(p))))
#define V_BLOCKS32(p)                                                              \
    _mm512_permutexvar_epi64(                                                      \
        _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0),                                  \
        _mm512_castsi256_si512(_mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(p)))))
#define V_SELECT(mask, yes, no) _mm512_ternarylogic_epi64(mask, yes, no, 0xca)
/* Parts of the product of 64-bit words: of the low halves, and of halves modulo 2^32. */
#define V_PRODUCT_OF_LOWS _mm512_mul_epu32
#define V_PRODUCTS_OF_HALVES _mm512_mullo_epi32
#define V_SWAP_HALVES(x) _mm512_shuffle_epi32(x, 0xb1)
#define V_HIGH_HALF(x) _mm512_srli_epi64(x, 32)
#define V_TO_HIGH_HALF(x) _mm512_slli_epi64(x, 32)
/* Carry-less product of one word of a with one of b; the immediate says which. */
#define V_CLMUL(a, b, which) _mm512_clmulepi64_epi128(a, b, which)
