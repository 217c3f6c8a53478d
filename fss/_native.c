/* The native loops of fss: argument checking, choice of instruction set, and nothing else.
 *
 * Every function takes buffers whose lengths it checks against the shape it was given, so that no
 * content of a key can move a read or a write; the GIL is released while it works. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "aes.h"
#include "verified_shape.h"

#include "lanes_aesni.h"
#include "lanes.h"
#include "tree_eval.h"
#include "tree_gen.h"
#include "square_root.h"
#include "verified_gen.h"
#include "verified_eval.h"
#include "grid_gen.h"
#include "grid_eval.h"
#include "lanes_undefine.h"

#include "lanes_vaes.h"
#include "lanes.h"
#include "tree_eval.h"
#include "tree_gen.h"
#include "square_root.h"
#include "verified_gen.h"
#include "verified_eval.h"
#include "grid_gen.h"
#include "grid_eval.h"
#include "lanes_undefine.h"

#include "lanes_vaes512.h"
#include "lanes.h"
#include "tree_eval.h"
#include "tree_gen.h"
#include "verified_gen.h"
#include "verified_eval.h"
#include "grid_gen.h"
#include "grid_eval.h"
#include "lanes_undefine.h"

#include "chunks.h"
#include "verified_chunks.h"

enum { NO_AES, AES_NI, VAES, VAES_512, INSTRUCTION_SETS };

/* The functions of one instruction set. Columns of square-root keys come in steps of 32, which are
 * too short for the widest one. */
static const struct {
    uint64_t (*hash_rounds)(const schedule *, uint64_t);
    void (*expand_seeds)(const uint8_t *, size_t, size_t, uint64_t *, int);
    gen_kernel gen;
    evaluate_kernel evaluate;
    void (*square_root)(const schedule *, const uint8_t *, const uint8_t *, size_t, uint64_t *);
    verified_gen_kernel verified_gen, grid_gen;
    verified_kernel verified, grid;
} kernels[INSTRUCTION_SETS] = {
    [AES_NI] = {hash_rounds_aesni, expand_seeds_aesni, gen_chunk_aesni, evaluate_chunk_aesni,
                square_root_row_aesni, verified_gen_chunk_aesni, grid_gen_chunk_aesni,
                verified_chunk_aesni, grid_chunk_aesni},
    [VAES] = {hash_rounds_vaes, expand_seeds_vaes, gen_chunk_vaes, evaluate_chunk_vaes,
              square_root_row_vaes, verified_gen_chunk_vaes, grid_gen_chunk_vaes,
              verified_chunk_vaes, grid_chunk_vaes},
    [VAES_512] = {hash_rounds_vaes512, expand_seeds_vaes512, gen_chunk_vaes512,
                  evaluate_chunk_vaes512, square_root_row_vaes, verified_gen_chunk_vaes512,
                  grid_gen_chunk_vaes512, verified_chunk_vaes512, grid_chunk_vaes512},
};

static int best_instruction_set(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("aes") || !__builtin_cpu_supports("sse4.1") ||
        !__builtin_cpu_supports("pclmul"))
        return NO_AES;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("vaes") ||
        !__builtin_cpu_supports("vpclmulqdq"))
        return AES_NI;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? VAES_512
               : VAES;
}

static int supported(int instruction_set)
{
    if (instruction_set >= AES_NI && instruction_set <= best_instruction_set())
        return 1;
    PyErr_Format(PyExc_ValueError, "this CPU has no instruction set %d", instruction_set);
    return 0;
}

static void release_buffers(Py_buffer **buffers)
{
    for (; *buffers; buffers++)
        PyBuffer_Release(*buffers);
}

static PyObject *best(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLong(best_instruction_set());
}

static PyObject *hash_rounds(PyObject *self, PyObject *args)
{
    int instruction_set;
    unsigned long long rounds, blocks;
    (void)self;
    if (!PyArg_ParseTuple(args, "iK", &instruction_set, &rounds) || !supported(instruction_set))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    static const uint8_t zero[SEED_BYTES];
    schedule key;
    expand_key(&key, zero);
    blocks = kernels[instruction_set].hash_rounds(&key, rounds);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLongLong(blocks);
}

static PyObject *expand(PyObject *args, int sum)
{
    int instruction_set;
    Py_buffer seeds, out;
    Py_ssize_t words;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "iy*nw*", &instruction_set, &seeds, &words, &out))
        return NULL;
    const Py_ssize_t count = seeds.len / SEED_BYTES;
    const Py_ssize_t rows = sum ? 1 : count;
    if (!supported(instruction_set))
        goto done;
    if (seeds.len % SEED_BYTES || words < 0 || out.len % 8 ||
        (rows ? (out.len / 8) % rows != 0 || out.len / 8 / rows != words : out.len != 0)) {
        PyErr_SetString(PyExc_ValueError, "seeds and output do not fit each other");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    kernels[instruction_set].expand_seeds(seeds.buf, (size_t)count, (size_t)words, out.buf, sum);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    release_buffers((Py_buffer *[]){&seeds, &out, NULL});
    return result;
}

static PyObject *expand_seeds(PyObject *self, PyObject *args)
{
    (void)self;
    return expand(args, 0);
}

static PyObject *expand_seeds_sum(PyObject *self, PyObject *args)
{
    (void)self;
    return expand(args, 1);
}

/* The shape's tuple, checked and completed; 0 with an exception set if it makes no sense. */
static int read_shape(PyObject *tuple, tree_shape *s)
{
    if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "iiiii", &s->bits, &s->terminal_bits,
                                                   &s->words, &s->word_bytes, &s->step))
        return 0;
    if (s->bits < 1 || s->bits > MAX_BITS || s->terminal_bits < 1 || s->terminal_bits > 4 ||
        s->terminal_bits > s->bits || (s->word_bytes != 4 && s->word_bytes != 8) || s->words < 1 ||
        s->words > 1 << s->terminal_bits || s->words * s->word_bytes > 4 * SEED_BYTES ||
        (s->step != 0 && s->step != 1)) {
        PyErr_SetString(PyExc_ValueError, "no such tree shape");
        return 0;
    }
    s->levels = s->bits - s->terminal_bits;
    s->level_bytes = SEED_BYTES + (s->step ? s->word_bytes : 0);
    s->words_offset = SEED_BYTES + s->levels * s->level_bytes;
    s->key_bytes = s->words_offset + (size_t)s->words * s->word_bytes;
    return 1;
}

static void expand_keys(const Py_buffer *keys, int usages, schedule *schedules)
{
    for (int usage = 0; usage < usages; usage++)
        expand_key(&schedules[usage], (const uint8_t *)keys->buf + usage * SEED_BYTES);
}

static int read_keys(const Py_buffer *keys, schedule *schedules)
{
    if (keys->len != USAGES * SEED_BYTES) {
        PyErr_SetString(PyExc_ValueError, "the hash needs three keys");
        return 0;
    }
    expand_keys(keys, USAGES, schedules);
    return 1;
}

/* Whether both servers' rows have room for the keys of `alphas`; 0 with an exception set if not. */
static int rows_fit(const Py_buffer *alphas, const Py_buffer *randomness, const Py_buffer *rows0,
                    const Py_buffer *rows1, size_t key_bytes)
{
    const size_t count = (size_t)alphas->len / 8;
    if (alphas->len % 8 == 0 && (size_t)randomness->len == count * 2 * SEED_BYTES &&
        (size_t)rows0->len == count * key_bytes && rows1->len == rows0->len)
        return 1;
    PyErr_SetString(PyExc_ValueError, "alphas, randomness and rows do not fit each other");
    return 0;
}

static PyObject *tree_gen(PyObject *self, PyObject *args)
{
    int instruction_set;
    PyObject *tuple, *result = NULL;
    Py_buffer keys, alphas, randomness, rows0, rows1;
    tree_shape s;
    schedule schedules[USAGES];
    (void)self;
    if (!PyArg_ParseTuple(args, "iOy*y*y*w*w*", &instruction_set, &tuple, &keys, &alphas,
                          &randomness, &rows0, &rows1))
        return NULL;
    if (!supported(instruction_set) || !read_shape(tuple, &s) || !read_keys(&keys, schedules))
        goto done;
    const size_t count = (size_t)alphas.len / 8;
    if (!rows_fit(&alphas, &randomness, &rows0, &rows1, s.key_bytes))
        goto done;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = gen_rows(kernels[instruction_set].gen, &s, schedules, alphas.buf, randomness.buf,
                      rows0.buf, rows1.buf, count);
    Py_END_ALLOW_THREADS
    result = failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
done:
    release_buffers((Py_buffer *[]){&keys, &alphas, &randomness, &rows0, &rows1, NULL});
    return result;
}

/* How many keys there are, and how many bytes apart; 0 with an exception set if they do not fit.
 * Rows may be columns of a larger table, for instance of submissions that begin with a header. */
static int read_data(const Py_buffer *data, int level_major, size_t key_bytes, size_t *count,
                     size_t *row_bytes)
{
    *row_bytes = 0;
    if (level_major && data->ndim == 1 && PyBuffer_IsContiguous(data, 'C')) {
        *count = (size_t)data->len / key_bytes;
        if ((size_t)data->len == *count * key_bytes)
            return 1;
    }
    if (!level_major && data->ndim == 2 && data->itemsize == 1 &&
        (size_t)data->shape[1] == key_bytes && data->strides[1] == 1 &&
        (data->shape[0] < 2 || data->strides[0] >= (Py_ssize_t)key_bytes)) {
        *count = (size_t)data->shape[0];
        *row_bytes = *count < 2 ? key_bytes : (size_t)data->strides[0];
        return 1;
    }
    PyErr_SetString(PyExc_ValueError, "no keys that fit the shape");
    return 0;
}

static PyObject *evaluate(PyObject *args, int sum)
{
    int instruction_set, server, level_major;
    Py_ssize_t begin, end;
    size_t count, row_bytes;
    PyObject *tuple, *stored, *result = NULL;
    Py_buffer keys, data, points, out;
    tree_shape s;
    schedule schedules[USAGES];
    if (!PyArg_ParseTuple(args, "iOy*iOpnny*w*", &instruction_set, &tuple, &keys, &server, &stored,
                          &level_major, &begin, &end, &points, &out))
        return NULL;
    if (PyObject_GetBuffer(stored, &data, PyBUF_STRIDED_RO)) {
        data.obj = NULL;
        goto done;
    }
    if (!supported(instruction_set) || !read_shape(tuple, &s) || !read_keys(&keys, schedules) ||
        !read_data(&data, level_major, s.key_bytes, &count, &row_bytes))
        goto done;
    const size_t points_count = (size_t)points.len / 8;
    const size_t rows = sum ? 1 : (size_t)(end - begin);
    if ((server != 0 && server != 1) || begin < 0 || end < begin || (size_t)end > count ||
        points.len % 8 || out.len % 8 ||
        (rows ? (size_t)out.len / 8 % rows || (size_t)out.len / 8 / rows != points_count
              : out.len != 0) ||
        !ascending(points.buf, points_count, s.bits)) {
        PyErr_SetString(PyExc_ValueError, "keys, points and output do not fit each other");
        goto done;
    }
    evaluation e = {
        .shape = &s, .keys = schedules, .server = server,
        .points = points.buf, .points_count = points_count,
        .sums = sum ? out.buf : NULL, .matrix = sum ? NULL : out.buf,
    };
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = evaluate_range(kernels[instruction_set].evaluate, &e, data.buf, row_bytes, count,
                            (size_t)begin, (size_t)end);
    Py_END_ALLOW_THREADS
    result = failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
done:
    release_buffers((Py_buffer *[]){&keys, &data, &points, &out, NULL});
    return result;
}

static PyObject *tree_sum(PyObject *self, PyObject *args)
{
    (void)self;
    return evaluate(args, 1);
}

static PyObject *tree_matrix(PyObject *self, PyObject *args)
{
    (void)self;
    return evaluate(args, 0);
}

/* Adds to out, (wanted rows, columns) words, the shares of keys that follow each other in memory.
 * Raises ValueError for sizes that do not fit, and for an entry whose slot does not exist. */
static PyObject *square_root_sum(PyObject *self, PyObject *args)
{
    int instruction_set;
    Py_ssize_t table_bytes, rows, columns;
    Py_buffer usage, keys, wanted, out;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*y*nnny*w*", &instruction_set, &usage, &keys, &table_bytes,
                          &rows, &columns, &wanted, &out))
        return NULL;
    if (!supported(instruction_set))
        goto done;
    enum { LARGEST = 1 << 20, ROW_BYTES = HELD_SLOTS * ENTRY_BYTES };
    if (usage.len != SEED_BYTES || table_bytes < 0 || table_bytes > 8 * LARGEST || rows < 1 ||
        rows > LARGEST || columns < 32 || columns > LARGEST || columns % 32 || wanted.len % 8) {
        PyErr_SetString(PyExc_ValueError, "no such square-root keys");
        goto done;
    }
    const size_t vectors = (size_t)table_bytes + (size_t)rows * ROW_BYTES;
    const size_t key_bytes = vectors + (size_t)SLOTS * (size_t)columns * 8;
    const size_t chosen = (size_t)wanted.len / 8, count = (size_t)keys.len / key_bytes;
    const uint64_t *numbers = wanted.buf;
    int fits = (size_t)keys.len == count * key_bytes &&
               (size_t)out.len == chosen * (size_t)columns * 8;
    for (size_t i = 0; fits && i < chosen; i++)
        fits = numbers[i] < (uint64_t)rows;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "keys, rows and output do not fit each other");
        goto done;
    }
    int malformed = 0;
    Py_BEGIN_ALLOW_THREADS
    schedule column_key;
    expand_key(&column_key, usage.buf);
    for (size_t n = 0; n < count && !malformed; n++) {
        const uint8_t *key = (const uint8_t *)keys.buf + n * key_bytes;
        for (size_t i = 0; i < chosen && !malformed; i++) {
            const uint8_t *entries = key + table_bytes + numbers[i] * ROW_BYTES;
            for (int e = 0; e < HELD_SLOTS; e++)
                malformed |= entries[e * ENTRY_BYTES] >= SLOTS;
            if (!malformed)
                kernels[instruction_set].square_root(&column_key, entries, key + vectors,
                                                     (size_t)columns,
                                                     (uint64_t *)out.buf + i * (size_t)columns);
        }
    }
    Py_END_ALLOW_THREADS
    if (malformed)
        PyErr_SetString(PyExc_ValueError, "a square-root key names slots that do not exist");
    else
        result = Py_NewRef(Py_None);
done:
    release_buffers((Py_buffer *[]){&usage, &keys, &wanted, &out, NULL});
    return result;
}

#include "verified_module.h"

static PyMethodDef methods[] = {
    {"best", best, METH_NOARGS, "Code of the widest instruction set this CPU has, or 0."},
    {"hash_rounds", hash_rounds, METH_VARARGS, "Hash on registers; returns the blocks hashed."},
    {"expand_seeds", expand_seeds, METH_VARARGS, "A keystream for each seed."},
    {"expand_seeds_sum", expand_seeds_sum, METH_VARARGS, "The keystreams' sum, added to out."},
    {"tree_gen", tree_gen, METH_VARARGS, "Both servers' rows."},
    {"tree_sum", tree_sum, METH_VARARGS, "Sums over keys, added to out."},
    {"square_root_sum", square_root_sum, METH_VARARGS, "Sums over square-root keys, added to out."},
    {"tree_matrix", tree_matrix, METH_VARARGS, "One word for each key and point."},
    {"verified_gen", verified_gen, METH_VARARGS, "Both servers' rows of verified keys."},
    {"verified_sum", verified_sum, METH_VARARGS, "Sums at leaves, added to, and every key's print."},
    {"grid_gen", grid_gen, METH_VARARGS, "Both servers' rows of grid keys, without the low part."},
    {"grid_sum", grid_sum, METH_VARARGS, "Sums at all leaves, added to, and every key's print."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Native loops of fss.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&definition);
}
