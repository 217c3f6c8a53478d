/* The loops of dawa_loops.py; the pure twin there is the specification.
 *
 * Deviations slide a window of each length over the cells and keep its values in a Fenwick tree by
 * rank, counts beside sums: O(N log² N) for all lengths. Sums of |counts| within 2^40 and N up to
 * 2^20 keep every product below within 2^62; the caller checks both.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t count, sum;
} Node;

static int compare(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void add(Node *tree, Py_ssize_t size, Py_ssize_t rank, int64_t sign, int64_t value)
{
    for (; rank <= size; rank += rank & -rank) {
        tree[rank].count += sign;
        tree[rank].sum += sign * value;
    }
}

/* Sum of |width·x − total| over the window: twice that over the values up to the mean. */
static int64_t spread(const Node *tree, Py_ssize_t size, const int64_t *values, int64_t width,
                      int64_t total)
{
    Py_ssize_t rank = 0, step = 1;
    int64_t count = 0, sum = 0;
    while (step <= size / 2)
        step *= 2;
    for (; step; step /= 2) {
        const Py_ssize_t next = rank + step;
        if (next <= size && width * values[next - 1] <= total) {
            rank = next;
            count += tree[next].count;
            sum += tree[next].sum;
        }
    }
    return 2 * (count * total - width * sum);
}

/* Rows of `out` are lengths 1, 2, 4, …; 0 on success, −1 without memory. */
static int deviations(const int64_t *cells, Py_ssize_t n, Py_ssize_t levels, int64_t *out)
{
    int64_t *values = malloc(n * sizeof *values);
    Py_ssize_t *ranks = malloc(n * sizeof *ranks);
    Node *tree = malloc((n + 1) * sizeof *tree);
    Py_ssize_t size = 0;
    if (!values || !ranks || !tree) {
        free(values);
        free(ranks);
        free(tree);
        return -1;
    }
    memcpy(values, cells, n * sizeof *values);
    qsort(values, n, sizeof *values, compare);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!i || values[i] != values[size - 1])
            values[size++] = values[i];
    for (Py_ssize_t i = 0; i < n; i++)
        ranks[i] = (int64_t *)bsearch(&cells[i], values, size, sizeof *values, compare) - values + 1;
    const int64_t longest = (int64_t)1 << (levels - 1);
    memset(out, 0, levels * n * sizeof *out);
    for (Py_ssize_t level = 1; level < levels; level++) {
        const int64_t width = (int64_t)1 << level;
        int64_t total = 0;
        memset(tree, 0, (size + 1) * sizeof *tree);
        for (Py_ssize_t i = 0; i < n; i++) {
            add(tree, size, ranks[i], 1, cells[i]);
            total += cells[i];
            if (i >= width) {
                add(tree, size, ranks[i - width], -1, cells[i - width]);
                total -= cells[i - width];
            }
            if (i >= width - 1)
                out[level * n + i - width + 1] =
                    longest / width * spread(tree, size, values, width, total);
        }
    }
    free(values);
    free(ranks);
    free(tree);
    return 0;
}

/* lengths[i] becomes that of the last bucket of the cheapest partition of cells 0..i. */
static int cheapest(const int64_t *costs, Py_ssize_t n, Py_ssize_t levels, int64_t *lengths)
{
    int64_t *best = malloc((n + 1) * sizeof *best);
    if (!best)
        return -1;
    best[0] = 0;
    for (Py_ssize_t end = 1; end <= n; end++) {
        best[end] = INT64_MAX;
        for (Py_ssize_t level = 0; level < levels && ((Py_ssize_t)1 << level) <= end; level++) {
            const Py_ssize_t start = end - ((Py_ssize_t)1 << level);
            const int64_t cost = best[start] + costs[level * n + start];
            if (cost < best[end]) {
                best[end] = cost;
                lengths[end - 1] = (int64_t)1 << level;
            }
        }
    }
    free(best);
    return 0;
}

typedef int (*Loop)(const int64_t *, Py_ssize_t, Py_ssize_t, int64_t *);

static PyObject *run(PyObject *args, Loop loop, int table_in)
{
    Py_buffer in, out;
    Py_ssize_t levels;
    if (!PyArg_ParseTuple(args, "y*nw*", &in, &levels, &out))
        return NULL;
    const Py_buffer *line = table_in ? &out : &in, *table = table_in ? &in : &out;
    const Py_ssize_t n = line->len / (Py_ssize_t)sizeof(int64_t);
    const int fits = n >= 1 && levels >= 1 && levels < 32 && ((Py_ssize_t)1 << (levels - 1)) <= n &&
                     line->len % (Py_ssize_t)sizeof(int64_t) == 0 &&
                     table->len == levels * line->len;
    int failed = 0;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        failed = loop(in.buf, n, levels, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&in);
    PyBuffer_Release(&out);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "the sizes of the arrays disagree");
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_deviations(PyObject *self, PyObject *args)
{
    (void)self;
    return run(args, deviations, 0);
}

static PyObject *py_cheapest(PyObject *self, PyObject *args)
{
    (void)self;
    return run(args, cheapest, 1);
}

static PyMethodDef methods[] = {
    {"deviations", py_deviations, METH_VARARGS, "deviations_twin, into the last argument"},
    {"cheapest", py_cheapest, METH_VARARGS, "cheapest_twin, into the last argument"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_dawa", "The loops of DAWA's first stage.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__dawa(void)
{
    return PyModule_Create(&module);
}
