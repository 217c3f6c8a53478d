/* TurboSHAKE128 (RFC 9861) over rows of equal length: bytes, or field elements by rejection.
 *
 * Nothing but sizes and rejected candidates, which are independent of what is kept, moves a branch
 * or an address. The GIL is released while a loop runs. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../algebra/field.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "lanes are read as little-endian words; the twin serves on other machines"
#endif

enum { LANES = 21, RATE = 8 * LANES };

static const uint64_t ROUND_CONSTANTS[12] = {
    UINT64_C(0x000000008000808b), UINT64_C(0x800000000000008b), UINT64_C(0x8000000000008089),
    UINT64_C(0x8000000000008003), UINT64_C(0x8000000000008002), UINT64_C(0x8000000000000080),
    UINT64_C(0x000000000000800a), UINT64_C(0x800000008000000a), UINT64_C(0x8000000080008081),
    UINT64_C(0x8000000000008080), UINT64_C(0x0000000080000001), UINT64_C(0x8000000080008008),
};

/* Where ρ and π move lane i, and by how many bits it turns. */
static const int MOVED[25] = {0,  10, 20, 5,  15, 16, 1,  11, 21, 6,  7, 17, 2,
                              12, 22, 23, 8,  18, 3,  13, 14, 24, 9,  19, 4};
static const int TURN[25] = {0,  1,  62, 28, 27, 36, 44, 6,  55, 20, 3,  10, 43,
                             25, 39, 41, 45, 15, 21, 8,  18, 2,  61, 56, 14};

static inline uint64_t turn(uint64_t lane, int bits)
{
    return lane << bits | lane >> ((64 - bits) & 63);
}

/* Keccak-p[1600, 12]: the last twelve rounds of Keccak-f. */
static void permute(uint64_t a[25])
{
    for (int round = 0; round < 12; round++) {
        uint64_t c[5], b[25];
#pragma GCC unroll 5
        for (int x = 0; x < 5; x++)
            c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
#pragma GCC unroll 25
        for (int i = 0; i < 25; i++) {
            const int x = i % 5;
            const uint64_t d = c[(x + 4) % 5] ^ turn(c[(x + 1) % 5], 1);
            b[MOVED[i]] = turn(a[i] ^ d, TURN[i]);
        }
#pragma GCC unroll 25
        for (int i = 0; i < 25; i++)
            a[i] = b[i] ^ (~b[i - i % 5 + (i + 1) % 5] & b[i - i % 5 + (i + 2) % 5]);
        a[0] ^= ROUND_CONSTANTS[round];
    }
}

static void absorb(uint64_t a[25], const uint8_t *message, size_t length, uint8_t domain)
{
    uint64_t block[LANES];
    memset(a, 0, 25 * sizeof *a);
    for (;; message += RATE, length -= RATE) {
        const int last = length < RATE;
        if (last) {
            uint8_t *bytes = (uint8_t *)block;
            memset(block, 0, RATE);
            memcpy(bytes, message, length);
            bytes[length] = domain;
            bytes[RATE - 1] ^= 0x80;
        } else
            memcpy(block, message, RATE);
        for (int lane = 0; lane < LANES; lane++)
            a[lane] ^= block[lane];
        permute(a);
        if (last)
            return;
    }
}

static void squeeze_bytes(uint64_t a[25], uint8_t *out, size_t length)
{
    for (; length > RATE; out += RATE, length -= RATE) {
        memcpy(out, a, RATE);
        permute(a);
    }
    memcpy(out, a, length);
}

typedef struct {
    uint64_t a[25];
    int lane;
} stream;

static inline uint64_t next_lane(stream *s)
{
    if (s->lane == LANES) {
        permute(s->a);
        s->lane = 0;
    }
    return s->a[s->lane++];
}

static void squeeze_elements(stream *s, int limbs, uint64_t *out, size_t count)
{
    if (limbs == 1) {
        for (size_t i = 0; i < count;) {
            out[i] = next_lane(s);
            i += out[i] < F64_P;
        }
        return;
    }
    for (size_t i = 0; i < count;) {
        out[2 * i] = next_lane(s);
        out[2 * i + 1] = next_lane(s);
        i += f128_load(out + 2 * i) < F128_P;
    }
}

static PyObject *squeeze(PyObject *self, PyObject *args)
{
    Py_buffer messages, out;
    Py_ssize_t rows;
    int domain;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*niw*", &messages, &rows, &domain, &out))
        return NULL;
    if (rows < 1 || messages.len % rows || out.len % rows || domain < 1 || domain > 0x7f) {
        PyErr_SetString(PyExc_ValueError, "messages and output do not fit each other");
        goto done;
    }
    const size_t length = (size_t)(messages.len / rows), wanted = (size_t)(out.len / rows);
    Py_BEGIN_ALLOW_THREADS
    for (size_t row = 0; row < (size_t)rows; row++) {
        uint64_t a[25];
        absorb(a, (const uint8_t *)messages.buf + row * length, length, (uint8_t)domain);
        squeeze_bytes(a, (uint8_t *)out.buf + row * wanted, wanted);
    }
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&messages);
    PyBuffer_Release(&out);
    return result;
}

static PyObject *squeeze_field(PyObject *self, PyObject *args)
{
    Py_buffer messages, out;
    Py_ssize_t rows;
    int limbs, domain;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "iy*niw*", &limbs, &messages, &rows, &domain, &out))
        return NULL;
    if ((limbs != 1 && limbs != 2) || rows < 1 || messages.len % rows || domain < 1 ||
        domain > 0x7f || out.len % rows || (out.len / rows) % (8 * limbs) ||
        (uintptr_t)out.buf % sizeof(uint64_t)) {
        PyErr_SetString(PyExc_ValueError, "messages and output do not fit each other");
        goto done;
    }
    const size_t length = (size_t)(messages.len / rows), words = (size_t)(out.len / rows / 8);
    Py_BEGIN_ALLOW_THREADS
    for (size_t row = 0; row < (size_t)rows; row++) {
        stream s = {.lane = 0};
        absorb(s.a, (const uint8_t *)messages.buf + row * length, length, (uint8_t)domain);
        squeeze_elements(&s, limbs, (uint64_t *)out.buf + row * words, words / (size_t)limbs);
    }
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&messages);
    PyBuffer_Release(&out);
    return result;
}

static PyMethodDef methods[] = {
    {"squeeze", squeeze, METH_VARARGS, "TurboSHAKE128 of every row."},
    {"squeeze_field", squeeze_field, METH_VARARGS, "Field elements from every row's stream."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_keccak", "TurboSHAKE128.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__keccak(void)
{
    return PyModule_Create(&definition);
}
