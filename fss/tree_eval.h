/* Evaluation of tree keys; included after lanes.h, once for each instruction set.
 *
 * Depth-first over the trie of sorted thresholds, a chunk of keys at a time. A node's state is one
 * block a key: the corrected seed, with its control bit still in bit `turn`, where turn is 0 for a
 * left child and 1 for a right child. Time depends on thresholds and sizes, never on key bytes. */

FN VEC NAME(clear)(VEC state)
{
    return V_ANDNOT(V_PAIR(3, 0), state);
}

FN const uint8_t *NAME(field)(const chunk_view *view, size_t offset, size_t width)
{
    return view->data + offset * view->stride + view->first * width;
}

/* Brings the same field of the next chunk nearer; it lies right behind this one. */
FN void NAME(fetch_ahead)(const uint8_t *field, size_t width)
{
    for (size_t byte = 0; byte < CHUNK * width; byte += 64)
        _mm_prefetch((const char *)field + CHUNK * width + byte, _MM_HINT_T1);
}

/* Control bits of 2 * LANES keys as all-ones or zero words, in the order of the keys. */
FN VEC NAME(control_words)(VEC a, VEC b, __m128i turn)
{
    const VEC one = V_PAIR(1, 1);
    VEC bits = V_AND(V_SHIFT_RIGHT(V_LOWS(a, b), turn), one);
    return V_SUB(V_PAIR(0, 0), bits);
}

FN VEC NAME(words)(const uint8_t *p, size_t key, int word_bytes)
{
    return word_bytes == 8 ? V_WORDS64(p + 8 * key) : V_WORDS32(p + 4 * key);
}

FN VEC NAME(blocks)(const uint8_t *p, size_t key, int word_bytes)
{
    return word_bytes == 8 ? V_BLOCKS64(p + 8 * key) : V_BLOCKS32(p + 4 * key);
}

/* to[k] = H(seed of from[k]), corrected where the control bit is set. */
FN void NAME(child)(const uint8_t *from, int turn, const VEC *k, const uint8_t *correction,
                    uint8_t *to, size_t count)
{
    for (size_t key = 0; key < count; key += GROUP * LANES) {
        VEC x[GROUP];
        for (int j = 0; j < GROUP; j++)
            x[j] = NAME(clear)(V_LOAD(from + SEED_BYTES * (key + LANES * j)));
        NAME(hash)(x, GROUP, k);
        for (int j = 0; j < GROUP; j++) {
            const size_t at = SEED_BYTES * (key + LANES * j);
            const V_CHOICE corrected = V_CHOOSE(V_LOAD(from + at), turn);
            V_STORE(to + at, V_XOR_WHERE(corrected, x[j], V_LOAD(correction + at)));
        }
    }
}

/* values[k] = low word of H(seed of from[k]), corrected. */
FN void NAME(value)(const uint8_t *from, int turn, const VEC *k, const uint8_t *correction,
                    int word_bytes, uint64_t *values, size_t count)
{
    const __m128i shift = _mm_cvtsi32_si128(turn);
    for (size_t key = 0; key < count; key += GROUP * LANES) {
        VEC x[GROUP];
        for (int j = 0; j < GROUP; j++)
            x[j] = NAME(clear)(V_LOAD(from + SEED_BYTES * (key + LANES * j)));
        NAME(hash)(x, GROUP, k);
        for (int j = 0; j < GROUP; j += 2) {
            const size_t at = key + LANES * j;
            VEC mask = NAME(control_words)(V_LOAD(from + SEED_BYTES * at),
                                           V_LOAD(from + SEED_BYTES * (at + LANES)), shift);
            VEC word = V_AND(mask, NAME(words)(correction, at, word_bytes));
            V_STORE(values + at, V_ADD(V_LOWS(x[j], x[j + 1]), word));
        }
    }
}

/* The sum over all lanes of what `value` would write: nothing has to leave the registers. */
FN uint64_t NAME(value_sum)(const uint8_t *from, int turn, const VEC *k, const uint8_t *correction,
                            int word_bytes, size_t count)
{
    VEC sum = V_PAIR(0, 0), corrections = sum;
    for (size_t key = 0; key < count; key += GROUP * LANES) {
        VEC x[GROUP];
        for (int j = 0; j < GROUP; j++) {
            const VEC state = V_LOAD(from + SEED_BYTES * (key + LANES * j));
            const VEC word = NAME(blocks)(correction, key + LANES * j, word_bytes);
            corrections = V_ADD_WHERE(V_CHOOSE(state, turn), corrections, word);
            x[j] = NAME(clear)(state);
        }
        NAME(hash)(x, GROUP, k);
        for (int j = 0; j < GROUP; j++)
            sum = V_ADD(sum, x[j]);
    }
    return NAME(low_words)(V_ADD(sum, corrections));
}

/* Both children and the value of a node at once, since all three need its seed. The right child
 * replaces its parent. */
FN void NAME(split_node)(uint8_t *state, int turn, const VEC (*k)[ROUND_KEYS],
                         const uint8_t *seeds, const uint8_t *words, int word_bytes,
                         uint8_t *left, uint64_t *values, size_t count)
{
    const __m128i shift = _mm_cvtsi32_si128(turn);
    for (size_t key = 0; key < count; key += 2 * LANES) {
        VEC from[2], x[2], h[2 * USAGES];
        for (int j = 0; j < 2; j++) {
            from[j] = V_LOAD(state + SEED_BYTES * (key + LANES * j));
            x[j] = NAME(clear)(from[j]);
        }
        NAME(hash_under)(x, 2, h, k, USAGES);
        for (int j = 0; j < 2; j++) {
            const size_t at = SEED_BYTES * (key + LANES * j);
            const V_CHOICE corrected = V_CHOOSE(from[j], turn);
            V_STORE(left + at, V_XOR_WHERE(corrected, h[2 * LEFT + j], V_LOAD(seeds + at)));
            V_STORE(state + at, V_XOR_WHERE(corrected, h[2 * RIGHT + j], V_LOAD(seeds + at)));
        }
        const VEC mask = NAME(control_words)(from[0], from[1], shift);
        const VEC word = V_AND(mask, NAME(words)(words, key, word_bytes));
        V_STORE(values + key, V_ADD(V_LOWS(h[2 * VALUE], h[2 * VALUE + 1]), word));
    }
}

#include "tree_sums.h"

/* All-ones where a key's control bit is set: shared by the words of one terminal node. */
FN void NAME(terminal_masks)(const uint8_t *from, int turn, uint64_t *masks, size_t count)
{
    const __m128i shift = _mm_cvtsi32_si128(turn);
    for (size_t key = 0; key < count; key += 2 * LANES)
        V_STORE(masks + key,
                NAME(control_words)(V_LOAD(from + SEED_BYTES * key),
                                    V_LOAD(from + SEED_BYTES * (key + LANES)), shift));
}

FN void NAME(terminal_block)(const uint8_t *from, int number, const VEC *k, uint8_t *to,
                             size_t count)
{
    for (size_t key = 0; key < count; key += GROUP * LANES) {
        VEC x[GROUP];
        for (int j = 0; j < GROUP; j++)
            x[j] = V_OR(NAME(clear)(V_LOAD(from + SEED_BYTES * (key + LANES * j))),
                        V_PAIR(number, 0));
        NAME(hash)(x, GROUP, k);
        for (int j = 0; j < GROUP; j++)
            V_STORE(to + SEED_BYTES * (key + LANES * j), x[j]);
    }
}

/* values[k] = the word at bit `position` of stretched[k], corrected. */
FN void NAME(terminal_word)(const uint8_t *stretched, int position, const uint64_t *masks,
                            const uint8_t *correction, int word_bytes, uint64_t *values,
                            size_t count)
{
    const __m128i shift = _mm_cvtsi32_si128(position % 64);
    for (size_t key = 0; key < count; key += 2 * LANES) {
        VEC a = V_LOAD(stretched + SEED_BYTES * key);
        VEC b = V_LOAD(stretched + SEED_BYTES * (key + LANES));
        VEC half = position < 64 ? V_LOWS(a, b) : V_HIGHS(a, b);
        VEC word = V_AND(V_LOAD(masks + key), NAME(words)(correction, key, word_bytes));
        V_STORE(values + key, V_ADD(V_SHIFT_RIGHT(half, shift), word));
    }
}

/* Plain C: the compiler vectorises it, and only `count` of the lanes hold keys. */
FN uint64_t NAME(total)(const uint64_t *values, size_t count)
{
    uint64_t sum = 0;
    for (size_t key = 0; key < count; key++)
        sum += values[key];
    return sum;
}

typedef struct {
    evaluation *e;
    VEC k[USAGES][ROUND_KEYS];
    size_t lanes; /* count rounded up to what the kernels step by */
    int full;     /* sums are wanted and every lane holds a key: values need not be kept apart */
} NAME(walk);

FN void NAME(terminal)(NAME(walk) *w, size_t depth, int turn, size_t low, size_t high,
                       uint64_t running)
{
    evaluation *e = w->e;
    const tree_shape *s = e->shape;
    const uint8_t *state = e->state + depth * CHUNK * SEED_BYTES;
    const uint64_t *totals = e->totals + depth * CHUNK;
    const uint64_t last = ((uint64_t)1 << s->terminal_bits) - 1;
    const int per_block = SEED_BYTES / s->word_bytes;
    uint8_t stretched[CHUNK * SEED_BYTES];
    uint64_t masks[CHUNK], values[CHUNK];
    int block = -1;
    if (e->matrix || (e->points[low] & last) < (uint64_t)s->words)
        NAME(terminal_masks)(state, turn, masks, w->lanes);
    for (size_t p = low; p < high; p++) {
        const int word = (int)(e->points[p] & last);
        if (word < s->words) {
            if (word / per_block != block) {
                block = word / per_block;
                NAME(terminal_block)(state, block, w->k[VALUE], stretched, w->lanes);
            }
            const uint8_t *correction = NAME(field)(
                &e->view, s->words_offset + (size_t)word * s->word_bytes, s->word_bytes);
            NAME(terminal_word)(stretched, word % per_block * s->word_bytes * 8, masks,
                                correction, s->word_bytes, values, w->lanes);
        } else {
            memset(values, 0, sizeof values);
        }
        if (e->sums)
            e->sums[p] += running + NAME(total)(values, e->count);
        else
            for (size_t key = 0; key < e->count; key++)
                e->matrix[key * e->points_count + p] = totals[key] + values[key];
    }
}

/* The first point in [low, high) whose bit is set; there is one. */
static inline size_t NAME(split)(const uint64_t *points, size_t low, size_t high, uint64_t bit)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (points[middle] & bit)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Whether a node that decides `bit` is needed for its value only: its first point turns left and
 * then only right, and at most one more point follows, which only turns right. */
static inline int NAME(one_value)(const uint64_t *points, size_t low, size_t high, uint64_t bit)
{
    const uint64_t rest = bit | (bit - 1);
    return (points[low] & rest) == bit - 1
           && (high - low == 1 || (high - low == 2 && (points[high - 1] & rest) == rest));
}

/* Point p needs nothing below the state that has these totals. */
FN void NAME(settle)(evaluation *e, const uint64_t *totals, size_t p, uint64_t running)
{
    if (e->sums)
        e->sums[p] += running;
    else
        for (size_t key = 0; key < e->count; key++)
            e->matrix[key * e->points_count + p] = totals[key];
}

/* Points [low, high) share their first `level` bits; buffer `depth` holds the state there. A left
 * child that has a sibling moves to the next buffer; otherwise the state is replaced in place. */
ENTRY void NAME(descend)(NAME(walk) *w, size_t depth, int level, int turn, size_t low, size_t high,
                         uint64_t running)
{
    evaluation *e = w->e;
    const tree_shape *s = e->shape;
    uint8_t *state = e->state + depth * CHUNK * SEED_BYTES;
    uint64_t *totals = e->totals + depth * CHUNK;
    uint64_t values[CHUNK];
    for (; level < s->levels; level++) {
        const size_t offset = SEED_BYTES + (size_t)level * s->level_bytes;
        const uint8_t *seeds = NAME(field)(&e->view, offset, SEED_BYTES);
        const uint8_t *words = NAME(field)(&e->view, offset + SEED_BYTES, s->word_bytes);
        const uint64_t bit = (uint64_t)1 << (s->bits - 1 - level), rest = bit | (bit - 1);
        /* A threshold that only turns right from here on meets no more values: on a coarse grid
         * of a fine domain, that is most of the way down. */
        if (s->step && (e->points[high - 1] & rest) == rest) {
            NAME(settle)(e, totals, high - 1, running);
            if (--high == low)
                return;
        }
        const int left = !(e->points[low] & bit), right = !!(e->points[high - 1] & bit);
        if (low == 0 && e->look_ahead) {
            NAME(fetch_ahead)(seeds, SEED_BYTES);
            if (s->step && left)
                NAME(fetch_ahead)(words, s->word_bytes);
        }
        uint64_t here = 0;
        const size_t middle = right ? NAME(split)(e->points, low, high, bit) : high;
        const int settled = left && s->step && middle - low == 1 && level + 1 < s->levels
                            && (e->points[low] & (bit - 1)) == bit - 1;
        const int both = left && right && s->step && !settled;
        const VEC(*k)[ROUND_KEYS] = (const VEC(*)[ROUND_KEYS])w->k;
        uint8_t *next = state + CHUNK * SEED_BYTES;
        if (both && w->full && level + 2 < s->levels
            && NAME(one_value)(e->points, low, middle, bit >> 1)
            && NAME(one_value)(e->points, middle, high, bit >> 1)) {
            const uint8_t *next_words = NAME(field)(
                &e->view, offset + s->level_bytes + SEED_BYTES, s->word_bytes);
            uint64_t sums[3];
            NAME(last_sums)(state, turn, k, seeds, words, next_words, s->word_bytes, sums,
                            w->lanes);
            e->sums[low] += running + sums[0] + sums[1];
            e->sums[middle] += running + sums[2];
            if (middle - low == 2)
                e->sums[low + 1] += running + sums[0];
            if (high - middle == 2)
                e->sums[middle + 1] += running;
            return;
        }
        if (both && w->full)
            here = NAME(split_sum)(state, turn, k, seeds, words, s->word_bytes, next, w->lanes);
        else if (both)
            NAME(split_node)(state, turn, k, seeds, words, s->word_bytes, next, values, w->lanes);
        else if (left && s->step && w->full)
            here = NAME(value_sum)(state, turn, k[VALUE], words, s->word_bytes, w->lanes);
        else if (left && s->step)
            NAME(value)(state, turn, k[VALUE], words, s->word_bytes, values, w->lanes);
        if (left && s->step && e->sums && !w->full)
            here = NAME(total)(values, e->count);
        if (settled) { /* the last turn left of the only point there: no child is needed */
            if (e->matrix)
                for (size_t key = 0; key < e->count; key++)
                    values[key] += totals[key];
            NAME(settle)(e, values, low, running + here);
            if (++low == high)
                return;
        } else if (left && right) {
            if (!both)
                NAME(child)(state, turn, k[LEFT], seeds, next, w->lanes);
            if (e->matrix)
                for (size_t key = 0; key < CHUNK; key++)
                    totals[CHUNK + key] = totals[key] + (s->step ? values[key] : 0);
            NAME(descend)(w, depth + 1, level + 1, 0, low, middle, running + here);
            low = middle;
        } else if (left) {
            if (e->matrix && s->step)
                for (size_t key = 0; key < CHUNK; key++)
                    totals[key] += values[key];
            running += here;
        }
        if (!both)
            NAME(child)(state, turn, k[right ? RIGHT : LEFT], seeds, state, w->lanes);
        turn = right;
    }
    NAME(terminal)(w, depth, turn, low, high, running);
}

/* Adds one chunk's share to e->sums, or writes its rows of e->matrix. */
ENTRY void NAME(evaluate_chunk)(evaluation *e)
{
    NAME(walk) w = {.e = e};
    const size_t step = GROUP * LANES;
    w.lanes = (e->count + step - 1) / step * step;
    w.full = e->sums && w.lanes == e->count;
    for (int usage = 0; usage < USAGES; usage++)
        NAME(broadcast)(w.k[usage], &e->keys[usage]);
    const uint8_t *roots = NAME(field)(&e->view, 0, SEED_BYTES);
    for (size_t key = 0; key < w.lanes; key += LANES) {
        VEC root = NAME(clear)(V_LOAD(roots + SEED_BYTES * key));
        V_STORE(e->state + SEED_BYTES * key, V_OR(root, V_PAIR(e->server, 0)));
    }
    memset(e->totals, 0, CHUNK * sizeof *e->totals);
    NAME(descend)(&w, 0, 0, 0, 0, e->points_count, 0);
}
