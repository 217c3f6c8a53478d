/* The Newton system of smoothing/newton.py, fork by fork; the pure twin is the specification.
 *
 * A plan row is {left, right, first, last, gap, above}. The factor holds the weights of the twin's
 * Network for each node in the order of elimination, four a node, and three for the two end points:
 * at large N its size is what a step costs. `nodes` and `gaps` are State's arrays, rows as numbered
 * there, padded.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LEFT, RIGHT, FIRST, LAST, GAP, ABOVE, PLAN };
enum { FACTOR = 8, MAX_LEVELS = 62 };
enum { C, DC, EDGE, QUADRATIC_ROWS, Y = QUADRATIC_ROWS, DY, UP, DUP, UM, DUM, ZP, ZM, ABSOLUTE_ROWS };
enum { S, LAM, DS, DLAM, K, H, RP, GAP_ROWS };

/* What is left of a block: the conductances first-last, first-above and last-above. */
typedef struct {
    double across, start, end;
} Block;

/* An eliminated node: the shares of its three neighbours, and the inverse of the sum. Returns where
 * the next one goes. */
static double *eliminate(double *w, double g0, double g1, double g2)
{
    const double inverse = 1.0 / (g0 + g1 + g2);
    w[0] = g0 * inverse;
    w[1] = g1 * inverse;
    w[2] = g2 * inverse;
    w[3] = inverse;
    return w + 4;
}

static void factor_forks(Py_ssize_t m, const int32_t *plan, const double *edges,
                         const double *gaps, double *w)
{
    /* In postorder the children that are blocks are the last unused ones, the right one on top. */
    Block stack[MAX_LEVELS + 2], *top = stack;
    for (Py_ssize_t k = 0; k < m - 1; k++) {
        const int32_t *p = plan + PLAN * k;
        const double bridge = gaps[p[GAP] + 1], edge = edges[m + k];
        double first_fork, right_fork, first_right, last_fork, first_last;

        const int left_is_block = p[LEFT] >= m, right_is_block = p[RIGHT] >= m;
        Block right = {0.0, edges[p[RIGHT]], 0.0};
        if (right_is_block)
            right = *--top;
        right_fork = right.start;
        if (left_is_block) {
            const Block left = *--top;
            const double *share = w;
            w = eliminate(w, left.across, left.end, bridge);
            first_fork = left.start + left.across * share[1];
            right_fork = right_fork + left.end * share[2];
            first_right = left.across * share[2];
        } else {
            first_fork = edges[p[LEFT]];
            first_right = bridge;
        }
        if (right_is_block) {
            const double *share = w;
            w = eliminate(w, first_right, right_fork, right.across);
            first_fork = first_fork + first_right * share[1];
            last_fork = right.end + right_fork * share[2];
            first_last = first_right * share[2];
        } else {
            last_fork = right_fork;
            first_last = first_right;
        }
        const double *share = w;
        w = eliminate(w, first_fork, last_fork, edge);
        top->across = first_last + first_fork * share[1];
        top->start = first_fork * share[2];
        top->end = last_fork * share[2];
        top++;
    }
    if (m == 1) {
        w[0] = 1.0 / (edges[0] + gaps[0] + gaps[1]);
        return;
    }
    const Block *root = stack;
    const double at_first = root->start + gaps[0], at_last = root->end + gaps[m];
    const double inverse = 1.0 / (root->across + at_last);
    const double share = root->across * inverse;
    w[0] = 1.0 / (at_first + at_last * share);
    w[1] = share;
    w[2] = inverse;
}

static void solve_forks(Py_ssize_t m, const int32_t *plan, const double *w, double *v)
{
    for (Py_ssize_t k = 0; k < m - 1; k++) {
        const int32_t *p = plan + PLAN * k;
        double at_first = v[p[FIRST]], at_fork = v[m + k];
        if (p[LEFT] >= m) {
            const double here = v[p[GAP]];
            at_first += w[0] * here;
            at_fork += w[1] * here;
            v[p[GAP] + 1] += w[2] * here;
            w += 4;
        }
        if (p[RIGHT] >= m) {
            const double here = v[p[GAP] + 1];
            at_first += w[0] * here;
            at_fork += w[1] * here;
            v[p[LAST]] += w[2] * here;
            w += 4;
        }
        v[p[FIRST]] = at_first + w[0] * at_fork;
        v[p[LAST]] += w[1] * at_fork;
        v[m + k] = at_fork;
        v[p[ABOVE]] += w[2] * at_fork;
        w += 4;
    }
    v[2 * m - 1] = 0.0;
    if (m == 1) {
        v[0] *= w[0];
        return;
    }
    v[0] = (v[0] + w[1] * v[m - 1]) * w[0];
    v[m - 1] = w[2] * v[m - 1] + w[1] * v[0];
    for (Py_ssize_t k = m - 2; k >= 0; k--) {
        const int32_t *p = plan + PLAN * k;
        const double at_first = v[p[FIRST]], at_last = v[p[LAST]];
        double *before = v + p[GAP];
        w -= 4;
        const double at_fork = w[3] * v[m + k] + w[0] * at_first + w[1] * at_last + w[2] * v[p[ABOVE]];
        v[m + k] = at_fork;
        if (p[RIGHT] >= m) {
            w -= 4;
            before[1] = w[3] * before[1] + w[0] * at_first + w[1] * at_fork + w[2] * at_last;
        }
        if (p[LEFT] >= m) {
            w -= 4;
            before[0] = w[3] * before[0] + w[0] * at_first + w[1] * at_fork + w[2] * before[1];
        }
    }
}

typedef struct {
    Py_ssize_t m;
    int p, box;
    const int32_t *plan, *above;
    double *nodes, *gaps, *factor;
    Py_ssize_t node_stride, gap_stride;
} System;

static double *node_row(const System *y, int row) { return y->nodes + y->node_stride * row; }
static double *gap_row(const System *y, int row) { return y->gaps + y->gap_stride * row; }

/* In both of these a NaN wins and stays, so that the caller sees it. */
static void larger(double *worst, double value)
{
    if (value > *worst || value != value)
        *worst = value;
}

/* Of a variable x > 0: the largest relative decrease so far. Divides only when there is a new one. */
static void shrink(double *worst, double x, double dx)
{
    if (-dx > *worst * x || dx != dx)
        *worst = -dx / x;
}

/* As ROUNDING in the twin. */
static double beyond_rounding(double residual)
{
    return fabs(residual) < 1e-14 ? 0.0 : residual;
}

static void advance(const System *y, double primal, double dual, double progress[4])
{
    const Py_ssize_t m = y->m, edges = 2 * m - 1;
    const int32_t *above = y->above;
    double *c = node_row(y, C), *balance = node_row(y, DC), *edge = node_row(y, EDGE);
    double *s = gap_row(y, S), *lam = gap_row(y, LAM), *k = gap_row(y, K), *rp = gap_row(y, RP);
    const double *h = gap_row(y, H), *ds = gap_row(y, DS), *dlam = gap_row(y, DLAM);
    double gap = 0.0, objective = 0.0, worst_primal = 0.0, worst_dual = 0.0;

    for (Py_ssize_t v = 0; v < edges; v++)
        c[v] += primal * balance[v];
    memset(balance, 0, 2 * (size_t)m * sizeof(double));
    if (y->p == 2) {
        for (Py_ssize_t v = 0; v < edges; v++) {
            const double nu = c[v] - c[above[v]], flow = edge[v] * nu;
            objective += flow * nu;
            balance[v] += flow;
            balance[above[v]] -= flow;
        }
        objective *= 0.5;
    } else {
        double *flow = node_row(y, Y), *up = node_row(y, UP), *um = node_row(y, UM);
        double *zp = node_row(y, ZP), *zm = node_row(y, ZM);
        const double *dup = node_row(y, DUP), *dum = node_row(y, DUM), *dy = node_row(y, DY);
        for (Py_ssize_t v = 0; v < edges; v++) {
            up[v] += primal * dup[v];
            um[v] += primal * dum[v];
            flow[v] += dual * dy[v];
            zp[v] -= dual * dy[v];
            zm[v] += dual * dy[v];
            const double nu = c[v] - c[above[v]];
            objective += fabs(nu);
            larger(&worst_primal, fabs(beyond_rounding(nu - up[v] + um[v])));
            gap += up[v] * zp[v] + um[v] * zm[v];
            /* 1 / (u+/z+ + u-/z-), in one division */
            edge[v] = zp[v] * zm[v] / (up[v] * zm[v] + um[v] * zp[v]);
            balance[v] += flow[v];
            balance[above[v]] -= flow[v];
        }
    }
    for (Py_ssize_t i = y->box ? 0 : 1; i < (y->box ? m + 1 : m); i++) {
        s[i] += primal * ds[i];
        lam[i] += dual * dlam[i];
        gap += s[i] * lam[i];
        k[i] = lam[i] / s[i];
        const double before = i > 0 ? c[i - 1] : 0.0, after = i < m ? c[i] : 0.0;
        rp[i] = beyond_rounding(after - before + h[i] - s[i]);
        larger(&worst_primal, fabs(rp[i]));
    }
    for (Py_ssize_t i = 0; i < m; i++)
        larger(&worst_dual, fabs(balance[i] - (lam[i] - lam[i + 1])));
    for (Py_ssize_t v = m; v < edges; v++)
        larger(&worst_dual, fabs(balance[v]));
    factor_forks(m, y->plan, edge, k, y->factor);
    progress[0] = gap;
    progress[1] = objective;
    progress[2] = worst_primal;
    progress[3] = worst_dual;
}

static void direction(const System *y, int correct, double target, double step[5])
{
    const Py_ssize_t m = y->m, edges = 2 * m - 1;
    const Py_ssize_t begin = y->box ? 0 : 1, end = y->box ? m + 1 : m;
    const int32_t *above = y->above;
    const double *c = node_row(y, C), *edge = node_row(y, EDGE);
    const double *s = gap_row(y, S), *lam = gap_row(y, LAM), *k = gap_row(y, K);
    const double *rp = gap_row(y, RP);
    double *dc = node_row(y, DC), *ds = gap_row(y, DS), *dlam = gap_row(y, DLAM);
    double *flow = NULL, *up = NULL, *um = NULL, *zp = NULL, *zm = NULL;
    double *dy = NULL, *dup = NULL, *dum = NULL;
    double shrink_primal = 0.0, shrink_dual = 0.0, primal = 0.0, dual = 0.0, both = 0.0;

    memset(dc, 0, 2 * (size_t)m * sizeof(double));
    if (y->p == 2) {
        for (Py_ssize_t v = 0; v < edges; v++) {
            const double current = edge[v] * (c[v] - c[above[v]]);
            dc[v] -= current;
            dc[above[v]] += current;
        }
    } else {
        flow = node_row(y, Y), up = node_row(y, UP), um = node_row(y, UM);
        zp = node_row(y, ZP), zm = node_row(y, ZM);
        dy = node_row(y, DY), dup = node_row(y, DUP), dum = node_row(y, DUM);
        for (Py_ssize_t v = 0; v < edges; v++) {
            const double split = up[v] - um[v];
            double pull = split + beyond_rounding(c[v] - c[above[v]] - split);
            if (correct) {
                const double second_p = -dup[v] * dy[v] - target, second_m = dum[v] * dy[v] - target;
                pull += (second_p * zm[v] - second_m * zp[v]) / (zp[v] * zm[v]);
                dup[v] = second_p;
                dum[v] = second_m;
            } else {
                dup[v] = dum[v] = 0.0;
            }
            const double current = flow[v] + edge[v] * pull;
            dc[v] -= current;
            dc[above[v]] += current;
            dy[v] = pull;
        }
    }
    /* Until the solution is known dlam holds the second-order terms. */
    for (Py_ssize_t i = begin; i < end; i++) {
        dlam[i] = correct ? (ds[i] * dlam[i] - target) / s[i] : 0.0;
        const double push = dlam[i] + k[i] * rp[i];
        if (i < m)
            dc[i] -= push;
        if (i > 0)
            dc[i - 1] += push;
    }
    solve_forks(m, y->plan, y->factor, dc);
    for (Py_ssize_t i = begin; i < end; i++) {
        const double before = i > 0 ? dc[i - 1] : 0.0, after = i < m ? dc[i] : 0.0;
        ds[i] = after - before + rp[i];
        dlam[i] = -lam[i] - dlam[i] - k[i] * ds[i];
        shrink(&shrink_primal, s[i], ds[i]);
        shrink(&shrink_dual, lam[i], dlam[i]);
        primal += ds[i] * lam[i];
        dual += s[i] * dlam[i];
        both += ds[i] * dlam[i];
    }
    if (y->p == 1) {
        for (Py_ssize_t v = 0; v < edges; v++) {
            dy[v] = edge[v] * (dc[v] - dc[above[v]] + dy[v]);
            dup[v] = (up[v] * (dy[v] - zp[v]) - dup[v]) / zp[v];
            dum[v] = (um[v] * (-dy[v] - zm[v]) - dum[v]) / zm[v];
            shrink(&shrink_primal, up[v], dup[v]);
            shrink(&shrink_primal, um[v], dum[v]);
            shrink(&shrink_dual, zp[v], -dy[v]);
            shrink(&shrink_dual, zm[v], dy[v]);
            primal += dup[v] * zp[v] + dum[v] * zm[v];
            dual += (um[v] - up[v]) * dy[v];
            both += (dum[v] - dup[v]) * dy[v];
        }
    }
    step[0] = shrink_primal;
    step[1] = shrink_dual;
    step[2] = primal;
    step[3] = dual;
    step[4] = both;
}

static int sizes_agree(const System *y, const Py_buffer *buffers)
{
    const Py_ssize_t m = y->m, rows = y->p == 1 ? ABSOLUTE_ROWS : QUADRATIC_ROWS;
    return m >= 1 && (y->p == 1 || y->p == 2) && y->node_stride >= 2 * m && y->gap_stride > m
           && buffers[0].len == (m - 1) * PLAN * (Py_ssize_t)sizeof(int32_t)
           && buffers[1].len == (2 * m - 1) * (Py_ssize_t)sizeof(int32_t)
           && buffers[2].len == y->node_stride * rows * (Py_ssize_t)sizeof(double)
           && buffers[3].len == y->gap_stride * GAP_ROWS * (Py_ssize_t)sizeof(double)
           && buffers[4].len == m * FACTOR * (Py_ssize_t)sizeof(double);
}

static PyObject *run(PyObject *args, const char *format, int advancing)
{
    Py_buffer b[5];
    int p, box, correct = 0;
    double primal = 0.0, dual = 0.0, out[5] = {0.0};
    const int parsed =
        advancing ? PyArg_ParseTuple(args, format, &b[0], &b[1], &b[2], &b[3], &b[4], &p, &box,
                                     &primal, &dual)
                  : PyArg_ParseTuple(args, format, &b[0], &b[1], &b[2], &b[3], &b[4], &p, &box,
                                     &correct, &primal);
    if (!parsed)
        return NULL;
    const Py_ssize_t m = b[4].len / (FACTOR * (Py_ssize_t)sizeof(double));
    const Py_ssize_t rows = p == 1 ? ABSOLUTE_ROWS : QUADRATIC_ROWS;
    const System system = {
        m, p, box, b[0].buf, b[1].buf, b[2].buf, b[3].buf, b[4].buf,
        b[2].len / (rows * (Py_ssize_t)sizeof(double)),
        b[3].len / (GAP_ROWS * (Py_ssize_t)sizeof(double)),
    };
    const int fits = sizes_agree(&system, b);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        if (advancing)
            advance(&system, primal, dual, out);
        else
            direction(&system, correct, primal, out);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < 5; i++)
        PyBuffer_Release(&b[i]);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "the sizes of the arrays disagree");
    return advancing ? Py_BuildValue("dddd", out[0], out[1], out[2], out[3])
                     : Py_BuildValue("ddddd", out[0], out[1], out[2], out[3], out[4]);
}

static PyObject *py_advance(PyObject *self, PyObject *args)
{
    (void)self;
    return run(args, "y*y*w*w*w*ipdd", 1);
}

static PyObject *py_direction(PyObject *self, PyObject *args)
{
    (void)self;
    return run(args, "y*y*w*w*w*ippd", 0);
}

static PyMethodDef methods[] = {
    {"advance", py_advance, METH_VARARGS, "Newton.advance"},
    {"direction", py_direction, METH_VARARGS, "Newton.direction"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_newton", "The Newton system of smoothing.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__newton(void)
{
    return PyModule_Create(&module);
}
