/* How often each byte occurs. Four tables in turn, so that a run of one value does not wait for its
   own last increment. Pure twin: `count_bytes_twin` in contract.py. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

static PyObject *count_bytes(PyObject *self, PyObject *argument)
{
    (void)self;
    Py_buffer view;
    if (PyObject_GetBuffer(argument, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = PyBytes_FromStringAndSize(NULL, 256 * sizeof(uint64_t));
    if (result == NULL) {
        PyBuffer_Release(&view);
        return NULL;
    }
    uint64_t tables[4][256];
    memset(tables, 0, sizeof tables);
    Py_BEGIN_ALLOW_THREADS
    const uint8_t *bytes = view.buf;
    size_t length = (size_t)view.len, i = 0;
    for (; i + 8 <= length; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        tables[0][word & 255]++;
        tables[1][word >> 8 & 255]++;
        tables[2][word >> 16 & 255]++;
        tables[3][word >> 24 & 255]++;
        tables[0][word >> 32 & 255]++;
        tables[1][word >> 40 & 255]++;
        tables[2][word >> 48 & 255]++;
        tables[3][word >> 56]++;
    }
    for (; i < length; i++)
        tables[0][bytes[i]]++;
    for (int value = 0; value < 256; value++)
        tables[0][value] += tables[1][value] + tables[2][value] + tables[3][value];
    Py_END_ALLOW_THREADS
    memcpy(PyBytes_AS_STRING(result), tables[0], 256 * sizeof(uint64_t));
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef methods[] = {
    {"count_bytes", count_bytes, METH_O, "256 counts, as native 64-bit words."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_counting", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__counting(void) { return PyModule_Create(&module); }
