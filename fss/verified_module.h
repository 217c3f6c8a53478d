/* Verified keys for Python: argument checking, as in _native.c, which includes this. */
#ifndef FSS_VERIFIED_MODULE_H
#define FSS_VERIFIED_MODULE_H

static int read_verified(int bits, const Py_buffer *keys, verified_shape *s, schedule *schedules)
{
    if (bits < 2 || bits > MAX_BITS || keys->len != VERIFIED_USAGES * SEED_BYTES) {
        PyErr_SetString(PyExc_ValueError, "no such verified keys");
        return 0;
    }
    s->bits = bits;
    s->key_bytes = 48 * (size_t)bits - 16;
    expand_keys(keys, VERIFIED_USAGES, schedules);
    return 1;
}

static PyObject *verified_gen(PyObject *self, PyObject *args)
{
    int instruction_set, bits;
    PyObject *result = NULL;
    Py_buffer keys, alphas, randomness, rows0, rows1;
    verified_shape s;
    schedule schedules[VERIFIED_USAGES];
    (void)self;
    if (!PyArg_ParseTuple(args, "iiy*y*y*w*w*", &instruction_set, &bits, &keys, &alphas,
                          &randomness, &rows0, &rows1))
        return NULL;
    if (!supported(instruction_set) || !read_verified(bits, &keys, &s, schedules))
        goto done;
    const size_t count = (size_t)alphas.len / 8;
    if (!rows_fit(&alphas, &randomness, &rows0, &rows1, s.key_bytes))
        goto done;
    Py_BEGIN_ALLOW_THREADS
    verified_gen_rows(kernels[instruction_set].verified_gen, &s, schedules, alphas.buf,
                      randomness.buf, rows0.buf, rows1.buf, count);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    release_buffers((Py_buffer *[]){&keys, &alphas, &randomness, &rows0, &rows1, NULL});
    return result;
}

static PyObject *verified_sum(PyObject *self, PyObject *args)
{
    int instruction_set, bits, blocks;
    PyObject *result = NULL;
    Py_buffer keys, rows, nodes, correction_weights, weights, sums, prints;
    verified_shape s;
    schedule schedules[VERIFIED_USAGES];
    (void)self;
    if (!PyArg_ParseTuple(args, "iiy*y*iy*y*y*w*w*", &instruction_set, &bits, &keys, &rows, &blocks,
                          &nodes, &correction_weights, &weights, &sums, &prints))
        return NULL;
    if (!supported(instruction_set) || !read_verified(bits, &keys, &s, schedules))
        goto done;
    const size_t count = (size_t)rows.len / s.key_bytes;
    int deepest = 0;
    for (int level = 2; level <= bits; level++)
        if (blocks == state_block(level) + 3)
            deepest = level;
    if (!deepest || (size_t)rows.len != count * s.key_bytes || weights.len % (8 * NODE_WEIGHTS) ||
        sums.len % 8 || correction_weights.len != 16 * (Py_ssize_t)blocks ||
        (size_t)prints.len != 24 * count ||
        !whole_tree(nodes.buf, (size_t)nodes.len, deepest,
                    (size_t)weights.len / (8 * NODE_WEIGHTS), (size_t)sums.len / 8)) {
        PyErr_SetString(PyExc_ValueError, "keys, nodes and output do not fit each other");
        goto done;
    }
    verified_evaluation e = {
        .keys = schedules, .blocks = blocks, .nodes = nodes.buf, .weights = weights.buf,
        .correction_weights = correction_weights.buf, .sums = sums.buf,
    };
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = verified_rows(kernels[instruction_set].verified, &e, &s, rows.buf, count, prints.buf);
    Py_END_ALLOW_THREADS
    result = failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
done:
    release_buffers((Py_buffer *[]){&keys, &rows, &nodes, &correction_weights, &weights, &sums,
                                    &prints, NULL});
    return result;
}

static int read_grid(int bits, const Py_buffer *keys, schedule *schedules)
{
    if (bits < MIN_GRID_BITS || bits > MAX_GRID_BITS || keys->len != GRID_USAGES * SEED_BYTES) {
        PyErr_SetString(PyExc_ValueError, "no such grid keys");
        return 0;
    }
    expand_keys(keys, GRID_USAGES, schedules);
    return 1;
}

/* Both servers' rows without the low part. */
static PyObject *grid_gen(PyObject *self, PyObject *args)
{
    int instruction_set, bits;
    PyObject *result = NULL;
    Py_buffer keys, alphas, randomness, rows0, rows1;
    schedule schedules[GRID_USAGES];
    (void)self;
    if (!PyArg_ParseTuple(args, "iiy*y*y*w*w*", &instruction_set, &bits, &keys, &alphas,
                          &randomness, &rows0, &rows1))
        return NULL;
    if (!supported(instruction_set) || !read_grid(bits, &keys, schedules))
        goto done;
    const verified_shape s = {bits, SEED_BYTES * (size_t)(bits - LOW_BITS + LOW_OFFSET)};
    if (!rows_fit(&alphas, &randomness, &rows0, &rows1, s.key_bytes))
        goto done;
    Py_BEGIN_ALLOW_THREADS
    verified_gen_rows(kernels[instruction_set].grid_gen, &s, schedules, alphas.buf, randomness.buf,
                      rows0.buf, rows1.buf, (size_t)alphas.len / 8);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    release_buffers((Py_buffer *[]){&keys, &alphas, &randomness, &rows0, &rows1, NULL});
    return result;
}

static PyObject *grid_sum(PyObject *self, PyObject *args)
{
    int instruction_set, bits;
    PyObject *result = NULL;
    Py_buffer keys, rows, correction_weights, weights, sums, prints;
    schedule schedules[GRID_USAGES];
    (void)self;
    if (!PyArg_ParseTuple(args, "iiy*y*y*y*w*w*", &instruction_set, &bits, &keys, &rows,
                          &correction_weights, &weights, &sums, &prints))
        return NULL;
    if (!supported(instruction_set) || !read_grid(bits, &keys, schedules))
        goto done;
    const int levels = bits - LOW_BITS, blocks = levels + LOW_OFFSET + LOW_BLOCKS;
    const verified_shape s = {bits, SEED_BYTES * (size_t)blocks};
    const size_t count = (size_t)rows.len / s.key_bytes;
    const size_t nodes = ((size_t)1 << levels) + (1 << LOW_BITS);
    if ((size_t)rows.len != count * s.key_bytes || correction_weights.len != 16 * (Py_ssize_t)blocks ||
        (size_t)weights.len != 8 * (NODE_WEIGHTS * nodes + 2 * WORD_BLOCKS) ||
        (size_t)sums.len != (size_t)8 << bits || (size_t)prints.len != 24 * count) {
        PyErr_SetString(PyExc_ValueError, "keys, weights and output do not fit each other");
        goto done;
    }
    verified_evaluation e = {
        .keys = schedules, .blocks = blocks, .weights = weights.buf, .levels = levels,
        .correction_weights = correction_weights.buf, .sums = sums.buf,
    };
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = verified_rows(kernels[instruction_set].grid, &e, &s, rows.buf, count, prints.buf);
    Py_END_ALLOW_THREADS
    result = failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
done:
    release_buffers((Py_buffer *[]){&keys, &rows, &correction_weights, &weights, &sums, &prints,
                                    NULL});
    return result;
}

#endif
