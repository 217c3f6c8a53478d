/* The elimination of smoothing/network.py as one loop over the forks, children first.
 *
 * A plan row is {left, right, first, last, gap, above}; a factor row is the twelve weights of the pure
 * twin followed by what is left of the block: first-last, first-above, last-above. The last factor row
 * holds the two end points. The operations and their order are those of the twin.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { LEFT, RIGHT, FIRST, LAST, GAP, ABOVE, PLAN };
enum { ACROSS = 12, START, END, FACTOR = 16 };

static void factor_forks(Py_ssize_t m, const int32_t *plan, const double *edges,
                         const double *gaps, double *factor)
{
    for (Py_ssize_t k = 0; k < m - 1; k++) {
        const int32_t *p = plan + PLAN * k;
        double *w = factor + FACTOR * k;
        const double bridge = gaps[p[GAP] + 1];
        double first_fork, right_fork, first_right, last_fork, first_last, inverse;

        const int left_is_block = p[LEFT] >= m, right_is_block = p[RIGHT] >= m;
        const double *left = factor + FACTOR * (p[LEFT] - m);
        const double *right = factor + FACTOR * (p[RIGHT] - m);
        right_fork = right_is_block ? right[START] : edges[p[RIGHT]];
        if (left_is_block) {
            inverse = 1.0 / (left[ACROSS] + left[END] + bridge);
            w[0] = left[ACROSS] * inverse;
            w[1] = left[END] * inverse;
            w[2] = bridge * inverse;
            w[3] = inverse;
            first_fork = left[START] + left[ACROSS] * w[1];
            right_fork = right_fork + left[END] * w[2];
            first_right = left[ACROSS] * w[2];
        } else {
            first_fork = edges[p[LEFT]];
            first_right = bridge;
        }
        if (right_is_block) {
            inverse = 1.0 / (first_right + right_fork + right[ACROSS]);
            w[4] = first_right * inverse;
            w[5] = right_fork * inverse;
            w[6] = right[ACROSS] * inverse;
            w[7] = inverse;
            first_fork = first_fork + first_right * w[5];
            last_fork = right[END] + right_fork * w[6];
            first_last = first_right * w[6];
        } else {
            last_fork = right_fork;
            first_last = first_right;
        }
        const double edge = edges[m + k];
        inverse = 1.0 / (first_fork + last_fork + edge);
        w[8] = first_fork * inverse;
        w[9] = last_fork * inverse;
        w[10] = edge * inverse;
        w[11] = inverse;
        w[ACROSS] = first_last + first_fork * w[9];
        w[START] = first_fork * w[10];
        w[END] = last_fork * w[10];
    }
    double *ends = factor + FACTOR * (m - 1);
    if (m == 1) {
        ends[0] = 1.0 / (edges[0] + gaps[0] + gaps[1]);
        return;
    }
    const double *root = ends - FACTOR;
    const double at_first = root[START] + gaps[0], at_last = root[END] + gaps[m];
    const double inverse = 1.0 / (root[ACROSS] + at_last);
    const double share = root[ACROSS] * inverse;
    ends[0] = 1.0 / (at_first + at_last * share);
    ends[1] = share;
    ends[2] = inverse;
}

static void solve_forks(Py_ssize_t m, const int32_t *plan, const double *factor, double *v)
{
    for (Py_ssize_t k = 0; k < m - 1; k++) {
        const int32_t *p = plan + PLAN * k;
        const double *w = factor + FACTOR * k;
        double at_first = v[p[FIRST]], at_fork = v[m + k];
        if (p[LEFT] >= m) {
            const double here = v[p[GAP]];
            at_first += w[0] * here;
            at_fork += w[1] * here;
            v[p[GAP] + 1] += w[2] * here;
        }
        if (p[RIGHT] >= m) {
            const double here = v[p[GAP] + 1];
            at_first += w[4] * here;
            at_fork += w[5] * here;
            v[p[LAST]] += w[6] * here;
        }
        v[p[FIRST]] = at_first + w[8] * at_fork;
        v[p[LAST]] += w[9] * at_fork;
        v[m + k] = at_fork;
        if (k < m - 2)
            v[p[ABOVE]] += w[10] * at_fork;
    }
    const double *ends = factor + FACTOR * (m - 1);
    if (m == 1) {
        v[0] *= ends[0];
        return;
    }
    v[0] = (v[0] + ends[1] * v[m - 1]) * ends[0];
    v[m - 1] = ends[2] * v[m - 1] + ends[1] * v[0];
    for (Py_ssize_t k = m - 2; k >= 0; k--) {
        const int32_t *p = plan + PLAN * k;
        const double *w = factor + FACTOR * k;
        const double at_first = v[p[FIRST]], at_last = v[p[LAST]];
        const double above = k < m - 2 ? v[p[ABOVE]] : 0.0;
        const double at_fork = w[11] * v[m + k] + w[8] * at_first + w[9] * at_last + w[10] * above;
        v[m + k] = at_fork;
        double *before = v + p[GAP];
        if (p[RIGHT] >= m)
            before[1] = w[7] * before[1] + w[4] * at_first + w[5] * at_fork + w[6] * at_last;
        if (p[LEFT] >= m)
            before[0] = w[3] * before[0] + w[0] * at_first + w[1] * at_fork + w[2] * before[1];
    }
}

static int sizes_agree(Py_ssize_t m, const Py_buffer *plan, const Py_buffer *factor)
{
    return m >= 1 && plan->len == (m - 1) * PLAN * (Py_ssize_t)sizeof(int32_t)
           && factor->len == m * FACTOR * (Py_ssize_t)sizeof(double);
}

static PyObject *py_factor(PyObject *self, PyObject *args)
{
    Py_buffer plan, edges, gaps, factor;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &plan, &edges, &gaps, &factor))
        return NULL;
    const Py_ssize_t m = gaps.len / (Py_ssize_t)sizeof(double) - 1;
    const int fits = sizes_agree(m, &plan, &factor)
                     && edges.len == (2 * m - 1) * (Py_ssize_t)sizeof(double);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        factor_forks(m, plan.buf, edges.buf, gaps.buf, factor.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&plan);
    PyBuffer_Release(&edges);
    PyBuffer_Release(&gaps);
    PyBuffer_Release(&factor);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "sizes of plan, edges, gaps and factor disagree");
    Py_RETURN_NONE;
}

static PyObject *py_solve(PyObject *self, PyObject *args)
{
    Py_buffer plan, factor, potentials;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*w*", &plan, &factor, &potentials))
        return NULL;
    const Py_ssize_t m = factor.len / (FACTOR * (Py_ssize_t)sizeof(double));
    const int fits = sizes_agree(m, &plan, &factor)
                     && potentials.len == (2 * m - 1) * (Py_ssize_t)sizeof(double);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        solve_forks(m, plan.buf, factor.buf, potentials.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&plan);
    PyBuffer_Release(&factor);
    PyBuffer_Release(&potentials);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "sizes of plan, factor and potentials disagree");
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"factor", py_factor, METH_VARARGS, "factor(plan, edges, gaps, factor)"},
    {"solve", py_solve, METH_VARARGS, "solve(plan, factor, potentials), in place"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_newton", "Elimination on the smoothing network.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__newton(void)
{
    return PyModule_Create(&module);
}
