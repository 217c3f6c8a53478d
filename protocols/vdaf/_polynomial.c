/* Native loops over polynomials: argument checking, and a call for each field.
 *
 * Buffers hold canonical elements of 8 × limbs bytes; their lengths are checked against each other.
 * The GIL is released while a loop runs. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../algebra/field.h"

#define E f64
#define F(name) f64_##name
#include "polynomial_loops.h"
#undef E
#undef F

/* numpy aligns to 16 bytes only what it allocates itself: a slice may begin at any word. */
typedef u128 __attribute__((aligned(8))) f128_word;
#define E f128_word
#define F(name) f128_##name
#include "polynomial_loops.h"
#undef E
#undef F

#define BY_LIMBS(name, ...)                                                                        \
    do {                                                                                           \
        Py_BEGIN_ALLOW_THREADS                                                                     \
        if (limbs == 1)                                                                            \
            f64_##name(__VA_ARGS__);                                                               \
        else                                                                                       \
            f128_##name(__VA_ARGS__);                                                              \
        Py_END_ALLOW_THREADS                                                                       \
    } while (0)

/* Whether a buffer holds `count` elements, aligned to words. */
static int holds(const Py_buffer *buffer, int limbs, Py_ssize_t count)
{
    return (limbs == 1 || limbs == 2) && count >= 0 && buffer->len % (8 * limbs) == 0 &&
           buffer->len / (8 * limbs) == count && (uintptr_t)buffer->buf % 8 == 0;
}

/* a·b·c, or −1 if one is negative or the product is beyond any array. */
static Py_ssize_t volume(Py_ssize_t a, Py_ssize_t b, Py_ssize_t c)
{
    Py_ssize_t ab, abc;
    if (a < 0 || b < 0 || c < 0 || __builtin_mul_overflow(a, b, &ab) ||
        __builtin_mul_overflow(ab, c, &abc))
        return -1;
    return abc;
}

static PyObject *finish(int fitted, Py_buffer **buffers)
{
    for (; *buffers; buffers++)
        PyBuffer_Release(*buffers);
    if (fitted)
        return Py_NewRef(Py_None);
    PyErr_SetString(PyExc_ValueError, "polynomials do not fit each other");
    return NULL;
}

static PyObject *shift(PyObject *self, PyObject *args)
{
    int limbs;
    Py_ssize_t outer, n, inner;
    Py_buffer values, roots, inverse_roots, twist;
    (void)self;
    if (!PyArg_ParseTuple(args, "iw*nnny*y*y*", &limbs, &values, &outer, &n, &inner, &roots,
                          &inverse_roots, &twist))
        return NULL;
    const int fitted = n > 0 && (n & (n - 1)) == 0 &&
                       holds(&values, limbs, volume(outer, n, inner)) && holds(&roots, limbs, n) &&
                       holds(&inverse_roots, limbs, n) && holds(&twist, limbs, n);
    if (fitted)
        BY_LIMBS(shift_all, values.buf, (size_t)outer, (size_t)n, (size_t)inner, roots.buf,
                 inverse_roots.buf, twist.buf);
    return finish(fitted, (Py_buffer *[]){&values, &roots, &inverse_roots, &twist, NULL});
}

static PyObject *lagrange(PyObject *self, PyObject *args)
{
    int limbs;
    Py_ssize_t count, n;
    Py_buffer points, roots, scaled, out;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*nny*y*w*", &limbs, &points, &count, &n, &roots, &scaled, &out))
        return NULL;
    const int fitted = holds(&points, limbs, count) && holds(&roots, limbs, n) &&
                       holds(&scaled, limbs, n) && holds(&out, limbs, volume(count, n, 1));
    if (fitted)
        BY_LIMBS(lagrange_all, points.buf, (size_t)count, (size_t)n, roots.buf, scaled.buf,
                 out.buf);
    return finish(fitted, (Py_buffer *[]){&points, &roots, &scaled, &out, NULL});
}

static PyObject *weighted(PyObject *self, PyObject *args)
{
    int limbs;
    Py_ssize_t outer, n, inner;
    Py_buffer weights, values, out;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*y*nnnw*", &limbs, &weights, &values, &outer, &n, &inner, &out))
        return NULL;
    const int fitted = holds(&weights, limbs, volume(outer, n, 1)) &&
                       holds(&values, limbs, volume(outer, n, inner)) &&
                       holds(&out, limbs, volume(outer, inner, 1));
    if (fitted)
        BY_LIMBS(weighted_all, weights.buf, values.buf, (size_t)outer, (size_t)n, (size_t)inner,
                 out.buf);
    return finish(fitted, (Py_buffer *[]){&weights, &values, &out, NULL});
}

static PyObject *powers(PyObject *self, PyObject *args)
{
    int limbs;
    Py_ssize_t bases_count, count;
    Py_buffer bases, out;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*nnw*", &limbs, &bases, &bases_count, &count, &out))
        return NULL;
    const int fitted =
        holds(&bases, limbs, bases_count) && holds(&out, limbs, volume(bases_count, count, 1));
    if (fitted)
        BY_LIMBS(powers_all, bases.buf, (size_t)bases_count, (size_t)count, out.buf);
    return finish(fitted, (Py_buffer *[]){&bases, &out, NULL});
}

static PyObject *pair_sums(PyObject *self, PyObject *args)
{
    int limbs;
    Py_ssize_t rows, pairs;
    Py_buffer values, out;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*nnw*", &limbs, &values, &rows, &pairs, &out))
        return NULL;
    const int fitted =
        holds(&values, limbs, volume(rows, pairs, 2)) && holds(&out, limbs, rows);
    if (fitted)
        BY_LIMBS(pair_sums_all, values.buf, (size_t)rows, (size_t)pairs, out.buf);
    return finish(fitted, (Py_buffer *[]){&values, &out, NULL});
}

static PyMethodDef methods[] = {
    {"shift", shift, METH_VARARGS, "Values at the roots to values between them, in place."},
    {"lagrange", lagrange, METH_VARARGS, "The Lagrange basis of the roots at every point."},
    {"weighted", weighted, METH_VARARGS, "Weighted sums over the middle axis."},
    {"powers", powers, METH_VARARGS, "Powers from the first on."},
    {"pair_sums", pair_sums, METH_VARARGS, "Sums of products of neighbours."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_polynomial", "Native polynomial loops.", -1, methods, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__polynomial(void)
{
    return PyModule_Create(&definition);
}
