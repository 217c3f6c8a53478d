/* Native loops over vectors of the two fields: argument checking, and a call for each field.
 *
 * Buffers hold canonical elements of 8 × limbs bytes; their lengths are checked against each other.
 * The GIL is released while a loop runs. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "field.h"

#define E f64
#define F(name) f64_##name
#define MODULUS F64_P
#include "field_loops.h"
#undef E
#undef F
#undef MODULUS

#define E f128
#define F(name) f128_##name
#define MODULUS F128_P
#include "field_loops.h"
#undef E
#undef F
#undef MODULUS

#define BY_LIMBS(name, ...)                                                                        \
    do {                                                                                           \
        if (limbs == 1)                                                                            \
            f64_##name(__VA_ARGS__);                                                               \
        else                                                                                       \
            f128_##name(__VA_ARGS__);                                                              \
    } while (0)

static int fits(int truth)
{
    if (!truth)
        PyErr_SetString(PyExc_ValueError, "field vectors do not fit each other");
    return truth;
}

/* The elements of a buffer, or −1 if it does not divide into any. */
static Py_ssize_t elements(const Py_buffer *buffer, int limbs)
{
    if ((limbs != 1 && limbs != 2) || buffer->len % (8 * limbs))
        return -1;
    return buffer->len / (8 * limbs);
}

typedef void loop(const uint8_t *, const uint8_t *, uint8_t *, size_t);

static PyObject *binary(PyObject *args, loop *narrow, loop *wide)
{
    int limbs;
    Py_buffer a, b, out;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "iy*y*w*", &limbs, &a, &b, &out))
        return NULL;
    const Py_ssize_t n = elements(&out, limbs);
    if (fits(n >= 0 && a.len == out.len && b.len == out.len)) {
        Py_BEGIN_ALLOW_THREADS
        (limbs == 1 ? narrow : wide)(a.buf, b.buf, out.buf, (size_t)n);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *add(PyObject *self, PyObject *args)
{
    (void)self;
    return binary(args, f64_add_all, f128_add_all);
}

static PyObject *sub(PyObject *self, PyObject *args)
{
    (void)self;
    return binary(args, f64_sub_all, f128_sub_all);
}

static PyObject *mul(PyObject *self, PyObject *args)
{
    (void)self;
    return binary(args, f64_mul_all, f128_mul_all);
}

static PyObject *inv(PyObject *self, PyObject *args)
{
    int limbs;
    Py_buffer a, out;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*w*", &limbs, &a, &out))
        return NULL;
    const Py_ssize_t n = elements(&out, limbs);
    if (fits(n >= 0 && a.len == out.len)) {
        Py_BEGIN_ALLOW_THREADS
        BY_LIMBS(inv_all, a.buf, out.buf, (size_t)n);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *canonical(PyObject *self, PyObject *args)
{
    int limbs;
    Py_buffer a;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*", &limbs, &a))
        return NULL;
    const Py_ssize_t n = elements(&a, limbs);
    if (fits(n >= 0))
        result = PyBool_FromLong(limbs == 1 ? f64_canonical_all(a.buf, (size_t)n)
                                            : f128_canonical_all(a.buf, (size_t)n));
    PyBuffer_Release(&a);
    return result;
}

static PyObject *sum(PyObject *self, PyObject *args)
{
    int limbs;
    Py_ssize_t count;
    Py_ssize_t inner;
    Py_buffer values, out;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*nnw*", &limbs, &values, &count, &inner, &out))
        return NULL;
    const Py_ssize_t n = elements(&out, limbs), given = elements(&values, limbs);
    if (fits(n >= 0 && given >= 0 && count > 0 && inner > 0 && n % inner == 0 &&
             given % count == 0 && given / count == n)) {
        Py_BEGIN_ALLOW_THREADS
        BY_LIMBS(sum_all, values.buf, out.buf, (size_t)(n / inner), (size_t)count, (size_t)inner);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *horner(PyObject *self, PyObject *args)
{
    int limbs;
    Py_buffer coefficients, points, out;
    Py_ssize_t terms;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*ny*w*", &limbs, &coefficients, &terms, &points, &out))
        return NULL;
    const Py_ssize_t given = elements(&coefficients, limbs), count = elements(&points, limbs);
    const Py_ssize_t n = elements(&out, limbs);
    if (fits(given >= 0 && count > 0 && n >= 0 && terms > 0 && given % terms == 0 &&
             n % count == 0 && n / count == given / terms)) {
        Py_BEGIN_ALLOW_THREADS
        BY_LIMBS(horner_all, coefficients.buf, (size_t)(given / terms), (size_t)terms, points.buf,
                 (size_t)count, out.buf);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&coefficients);
    PyBuffer_Release(&points);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *dot(PyObject *self, PyObject *args)
{
    int limbs;
    Py_buffer weights, values, out;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*y*w*", &limbs, &weights, &values, &out))
        return NULL;
    const Py_ssize_t count = elements(&weights, limbs), given = elements(&values, limbs);
    const Py_ssize_t rows = elements(&out, limbs);
    if (fits(count > 0 && given >= 0 && rows >= 0 && given % count == 0 &&
             given / count == rows)) {
        Py_BEGIN_ALLOW_THREADS
        BY_LIMBS(dot_all, weights.buf, values.buf, out.buf, (size_t)rows, (size_t)count);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&weights);
    PyBuffer_Release(&values);
    PyBuffer_Release(&out);
    return result;
}

static PyMethodDef methods[] = {
    {"add", add, METH_VARARGS, "a + b into out."},
    {"sub", sub, METH_VARARGS, "a - b into out."},
    {"mul", mul, METH_VARARGS, "a times b into out."},
    {"inv", inv, METH_VARARGS, "1 / a into out; 0 for 0."},
    {"canonical", canonical, METH_VARARGS, "Whether every element is below the modulus."},
    {"sum", sum, METH_VARARGS, "Sums over the middle axis into out."},
    {"horner", horner, METH_VARARGS, "Every row of coefficients at every point."},
    {"dot", dot, METH_VARARGS, "Dot product of weights with every row."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_field", "Native field loops.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__field(void)
{
    return PyModule_Create(&definition);
}
