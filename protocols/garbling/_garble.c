/* The native loops of garbling and OT extension: argument checking, choice of instruction set, and
 * the bit transpose. garbling.py and blocks.py say what each computes; twin.py must equal them.
 *
 * Lengths and wire numbers are checked here, so that neither a peer's bytes nor a wrong circuit
 * can move a read or a write. The GIL is released while a loop works. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../fss/aes.h"

enum { BLOCK = 16, COLUMNS = 128, VECTORS = 4 };
enum { GATE_XOR, GATE_AND, GATE_NOT };
enum { AES_NI = 1, VAES = 2 };

/* A call's arguments; `deltas` is NULL for the evaluator. */
typedef struct {
    const uint32_t *gates, *outputs;
    size_t inputs, gates_count, outputs_count, ands, links, instances;
    const uint8_t *keys, *deltas, *labels;
    uint8_t *tables, *out;
} garbling;

#include "../../fss/lanes_aesni.h"
#define V_LANE(v, lane) (v)
#define V_LANES(rows, offset) _mm_loadu_si128((const __m128i *)((rows)[0] + (offset)))
#include "garble_kernel.h"
#undef V_LANE
#undef V_LANES
#include "../../fss/lanes_undefine.h"

#include "../../fss/lanes_vaes.h"
#define V_LANE(v, lane)                                                                            \
    ((lane) ? _mm256_extracti128_si256(v, 1) : _mm256_castsi256_si128(v))
#define V_LANES(rows, offset)                                                                      \
    _mm256_loadu2_m128i((const __m128i *)((rows)[1] + (offset)),                                   \
                        (const __m128i *)((rows)[0] + (offset)))
#include "garble_kernel.h"
#undef V_LANE
#undef V_LANES
#include "../../fss/lanes_undefine.h"

static int best_instruction_set(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("aes") || !__builtin_cpu_supports("sse4.1") ||
        !__builtin_cpu_supports("pclmul"))
        return 0;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vaes") ? VAES : AES_NI;
}

static int supported(int instruction_set)
{
    if (instruction_set >= AES_NI && instruction_set <= best_instruction_set())
        return 1;
    PyErr_Format(PyExc_ValueError, "this CPU has no instruction set %d", instruction_set);
    return 0;
}

static PyObject *best(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLong(best_instruction_set());
}

/* Whether every gate reads wires before its own, as the walk needs it; counts the ANDs. */
static int topological(garbling *g)
{
    g->ands = 0;
    for (size_t i = 0; i < g->gates_count; i++) {
        const uint32_t *gate = g->gates + 3 * i;
        if (gate[0] > GATE_NOT || gate[1] >= g->inputs + i || gate[2] >= g->inputs + i)
            return 0;
        g->ands += gate[0] == GATE_AND;
    }
    for (size_t o = 0; o < g->outputs_count; o++)
        if (g->outputs[o] >= g->inputs + g->gates_count)
            return 0;
    return 1;
}

/* -1 without memory. Labels of somebody's inputs do not stay behind in what was scratch. */
static int run(const garbling *g, int instruction_set)
{
    const size_t lanes = instruction_set == VAES ? 2 : 1;
    const size_t wires = (g->inputs + g->gates_count) * VECTORS * lanes * BLOCK + BLOCK;
    const size_t rest = (g->inputs + 2 * g->ands + g->outputs_count) * BLOCK + BLOCK;
    uint8_t *scratch = aligned_alloc(32, (wires + 31) & ~(size_t)31), *spare = calloc(1, rest);
    if (scratch && spare)
        for (size_t link = 0; link < g->links; link++)
            (instruction_set == VAES ? run_link_vaes : run_link_aesni)(g, link, scratch, spare);
    const int failed = !scratch || !spare;
    if (scratch)
        wipe(scratch, wires);
    if (spare)
        wipe(spare, rest);
    free(scratch);
    free(spare);
    return failed ? -1 : 0;
}

static PyObject *walk(PyObject *args, int garbles)
{
    int instruction_set;
    Py_buffer gates, outputs, keys, deltas = {0}, labels, tables, out;
    Py_ssize_t inputs, instances;
    PyObject *result = NULL;
    const int parsed = garbles
        ? PyArg_ParseTuple(args, "iny*y*ny*y*y*w*w*", &instruction_set, &inputs, &gates, &outputs,
                           &instances, &keys, &deltas, &labels, &tables, &out)
        : PyArg_ParseTuple(args, "iny*y*ny*y*y*w*", &instruction_set, &inputs, &gates, &outputs,
                           &instances, &keys, &labels, &tables, &out);
    if (!parsed)
        return NULL;
    garbling g = {
        .gates = gates.buf, .outputs = outputs.buf, .inputs = (size_t)inputs,
        .gates_count = (size_t)gates.len / 12, .outputs_count = (size_t)outputs.len / 4,
        .links = (size_t)keys.len / BLOCK, .instances = (size_t)instances,
        .keys = keys.buf, .deltas = garbles ? deltas.buf : NULL, .labels = labels.buf,
        .tables = tables.buf, .out = out.buf,
    };
    if (!supported(instruction_set))
        goto done;
    if (inputs < 0 || inputs >= (Py_ssize_t)1 << 32 || instances < 0 || gates.len % 12 ||
        outputs.len % 4 || keys.len % BLOCK || !topological(&g)) {
        PyErr_SetString(PyExc_ValueError, "no such circuit");
        goto done;
    }
    /* Each length is below 2^63, so the products fit 128 bits. */
    const unsigned __int128 rows = (unsigned __int128)g.links * g.instances;
    if ((garbles && deltas.len != keys.len) || rows > (size_t)-1 >> 40 ||
        (size_t)labels.len != (size_t)rows * g.inputs * BLOCK ||
        (size_t)tables.len != (size_t)rows * g.ands * 2 * BLOCK ||
        (size_t)out.len != (size_t)rows * g.outputs_count * BLOCK) {
        PyErr_SetString(PyExc_ValueError, "labels, tables and circuit do not fit each other");
        goto done;
    }
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = run(&g, instruction_set);
    Py_END_ALLOW_THREADS
    result = failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
done:
    PyBuffer_Release(&gates);
    PyBuffer_Release(&outputs);
    PyBuffer_Release(&keys);
    if (garbles)
        PyBuffer_Release(&deltas);
    PyBuffer_Release(&labels);
    PyBuffer_Release(&tables);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *garble(PyObject *self, PyObject *args)
{
    (void)self;
    return walk(args, 1);
}

static PyObject *evaluate(PyObject *self, PyObject *args)
{
    (void)self;
    return walk(args, 0);
}

/* hash_blocks(set, keys, domain, blocks, out) and keystream(set, seeds, start, out): equally many
 * blocks for every key. */
static PyObject *by_key(PyObject *args, int hashes)
{
    int instruction_set;
    unsigned long long number;
    Py_buffer keys, blocks = {0}, out;
    PyObject *result = NULL;
    const int parsed =
        hashes ? PyArg_ParseTuple(args, "iy*Ky*w*", &instruction_set, &keys, &number, &blocks, &out)
               : PyArg_ParseTuple(args, "iy*Kw*", &instruction_set, &keys, &number, &out);
    if (!parsed)
        return NULL;
    const size_t count = (size_t)keys.len / BLOCK;
    const size_t each = count ? (size_t)out.len / BLOCK / count : 0;
    if (!supported(instruction_set))
        goto done;
    if (keys.len % BLOCK || (size_t)out.len != count * each * BLOCK ||
        (hashes && blocks.len != out.len) || number + each < number) {
        PyErr_SetString(PyExc_ValueError, "keys and blocks do not fit each other");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < count; i++) {
        const uint8_t *key = (const uint8_t *)keys.buf + i * BLOCK;
        uint8_t *to = (uint8_t *)out.buf + i * each * BLOCK;
        if (hashes)
            (instruction_set == VAES ? hash_link_vaes : hash_link_aesni)(
                key, (const uint8_t *)blocks.buf + i * each * BLOCK, each, number, to);
        else
            (instruction_set == VAES ? keystream_vaes : keystream_aesni)(key, number, each, to);
    }
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&keys);
    if (hashes)
        PyBuffer_Release(&blocks);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *hash_blocks(PyObject *self, PyObject *args)
{
    (void)self;
    return by_key(args, 1);
}

static PyObject *keystream(PyObject *self, PyObject *args)
{
    (void)self;
    return by_key(args, 0);
}

/* 128 columns of `width` bytes to 8·width rows of 16 bytes; bit 0 of a byte comes first. */
static void transpose_link(const uint8_t *columns, size_t width, uint8_t *rows)
{
    for (size_t byte = 0; byte < width; byte++)
        for (int group = 0; group < COLUMNS / 16; group++) {
            uint8_t gathered[16];
            for (int i = 0; i < 16; i++)
                gathered[i] = columns[(size_t)(16 * group + i) * width + byte];
            __m128i x = _mm_loadu_si128((const __m128i *)gathered);
            for (int bit = 7; bit >= 0; bit--) {
                const uint16_t bits = (uint16_t)_mm_movemask_epi8(x);
                memcpy(rows + (8 * byte + (size_t)bit) * BLOCK + 2 * group, &bits, 2);
                x = _mm_slli_epi64(x, 1);
            }
        }
}

static PyObject *transpose(PyObject *self, PyObject *args)
{
    Py_buffer columns, rows;
    Py_ssize_t width;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nw*", &columns, &width, &rows))
        return NULL;
    if (width < 0 || width > PY_SSIZE_T_MAX / COLUMNS || columns.len != rows.len ||
        (width ? columns.len % (COLUMNS * width) != 0 : columns.len != 0)) {
        PyErr_SetString(PyExc_ValueError, "columns and rows do not fit each other");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < columns.len; at += COLUMNS * width)
        transpose_link((const uint8_t *)columns.buf + at, (size_t)width,
                       (uint8_t *)rows.buf + at);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&columns);
    PyBuffer_Release(&rows);
    return result;
}

/* GF(2^128) modulo x^128 + x^7 + x^2 + x + 1; bit 0 of byte 0 is the coefficient of x^0. */
#define FIELD_TARGET __attribute__((target("pclmul,sse4.1")))

static inline FIELD_TARGET __m128i field_multiply(__m128i a, __m128i b)
{
    const __m128i modulus = _mm_set_epi64x(0, 0x87);
    __m128i low = _mm_clmulepi64_si128(a, b, 0x00), high = _mm_clmulepi64_si128(a, b, 0x11);
    const __m128i middle = _mm_xor_si128(_mm_clmulepi64_si128(a, b, 0x01),
                                         _mm_clmulepi64_si128(a, b, 0x10));
    low = _mm_xor_si128(low, _mm_slli_si128(middle, 8));
    high = _mm_xor_si128(high, _mm_srli_si128(middle, 8));
    const __m128i top = _mm_clmulepi64_si128(high, modulus, 0x01);
    low = _mm_xor_si128(low, _mm_slli_si128(top, 8));
    high = _mm_xor_si128(high, _mm_srli_si128(top, 8));
    return _mm_xor_si128(low, _mm_clmulepi64_si128(high, modulus, 0x00));
}

/* Every column as a polynomial, its first block the highest coefficient, at the link's point. Four
 * columns at a time hide the latency of a multiplication. */
static FIELD_TARGET void field_hash_link(const uint8_t *point, const uint8_t *columns, size_t count,
                                         size_t blocks, uint8_t *out)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)point);
    const size_t width = blocks * BLOCK;
    for (size_t at = 0; at < count; at += 4) {
        const size_t lanes = count - at < 4 ? count - at : 4;
        __m128i sums[4] = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128(),
                           _mm_setzero_si128()};
        for (size_t block = 0; block < blocks; block++)
            for (size_t lane = 0; lane < lanes; lane++) {
                const uint8_t *from = columns + (at + lane) * width + block * BLOCK;
                sums[lane] = _mm_xor_si128(field_multiply(sums[lane], x),
                                           _mm_loadu_si128((const __m128i *)from));
            }
        for (size_t lane = 0; lane < lanes; lane++)
            _mm_storeu_si128((__m128i *)(out + (at + lane) * BLOCK), sums[lane]);
    }
}

/* field_hash(set, points, columns, blocks, out): equally many columns for every point. */
static PyObject *field_hash(PyObject *self, PyObject *args)
{
    int instruction_set;
    Py_buffer points, columns, out;
    Py_ssize_t blocks;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*y*nw*", &instruction_set, &points, &columns, &blocks, &out))
        return NULL;
    const size_t count = (size_t)points.len / BLOCK;
    const size_t each = count ? (size_t)out.len / BLOCK / count : 0;
    if (!supported(instruction_set))
        goto done;
    if (points.len % BLOCK || blocks < 0 || (size_t)out.len != count * each * BLOCK ||
        (unsigned __int128)out.len * (size_t)blocks != (size_t)columns.len) {
        PyErr_SetString(PyExc_ValueError, "points and columns do not fit each other");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i < count; i++)
        field_hash_link((const uint8_t *)points.buf + i * BLOCK,
                        (const uint8_t *)columns.buf + i * each * (size_t)blocks * BLOCK, each,
                        (size_t)blocks, (uint8_t *)out.buf + i * each * BLOCK);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&points);
    PyBuffer_Release(&columns);
    PyBuffer_Release(&out);
    return result;
}

static PyMethodDef methods[] = {
    {"best", best, METH_NOARGS, "Code of the widest instruction set this CPU has, or 0."},
    {"garble", garble, METH_VARARGS, "Tables and output labels of every instance."},
    {"evaluate", evaluate, METH_VARARGS, "Active output labels of every instance."},
    {"hash_blocks", hash_blocks, METH_VARARGS, "The tweaked hash of blocks, by key."},
    {"keystream", keystream, METH_VARARGS, "AES-CTR blocks of every seed."},
    {"field_hash", field_hash, METH_VARARGS, "Columns as polynomials over GF(2^128), at a point."},
    {"transpose", transpose, METH_VARARGS, "128 columns of bits to rows of 16 bytes."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_garble", "Native loops of garbling.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__garble(void)
{
    return PyModule_Create(&definition);
}
