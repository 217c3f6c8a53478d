/* The native loops of fss: argument checking, choice of instruction set, and nothing else.
 *
 * Every function takes buffers whose lengths it checks against the shape it was given, so that no
 * content of a key can move a read or a write; the GIL is released while it works. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "aes.h"

#include "lanes_aesni.h"
#include "lanes.h"
#include "lanes_undefine.h"

#include "lanes_vaes.h"
#include "lanes.h"
#include "lanes_undefine.h"

enum { AES_NI = 1, VAES = 2 };

static int best_instruction_set(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("aes") || !__builtin_cpu_supports("sse4.1"))
        return 0;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("vaes"))
        return VAES;
    return AES_NI;
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
    blocks = instruction_set == VAES ? hash_rounds_vaes(&key, rounds)
                                     : hash_rounds_aesni(&key, rounds);
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
    (instruction_set == VAES ? expand_seeds_vaes : expand_seeds_aesni)(
        seeds.buf, (size_t)count, (size_t)words, out.buf, sum);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&seeds);
    PyBuffer_Release(&out);
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

static PyMethodDef methods[] = {
    {"best", best, METH_NOARGS, "Code of the widest instruction set this CPU has, or 0."},
    {"hash_rounds", hash_rounds, METH_VARARGS, "Hash on registers; returns the blocks hashed."},
    {"expand_seeds", expand_seeds, METH_VARARGS, "A keystream for each seed."},
    {"expand_seeds_sum", expand_seeds_sum, METH_VARARGS, "The keystreams' sum, added to out."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Native loops of fss.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&definition);
}
