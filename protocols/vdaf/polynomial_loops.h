/* Loops over polynomials given by their values; included once for each field, with E the element
 * type and F(name) its functions. Arrays are outer × n × inner: row i of a polynomial's values
 * holds `inner` polynomials' values at the i-th point. */

static void F(butterfly_down)(E *u, E *v, size_t inner, E root, int turn)
{
    for (size_t i = 0; i < inner; i++) {
        const E a = u[i], b = v[i], difference = F(sub)(a, b);
        u[i] = F(add)(a, b);
        v[i] = turn ? F(mul)(difference, root) : difference;
    }
}

static void F(butterfly_up)(E *u, E *v, size_t inner, E root, int turn)
{
    for (size_t i = 0; i < inner; i++) {
        const E a = u[i], b = turn ? F(mul)(v[i], root) : v[i];
        u[i] = F(add)(a, b);
        v[i] = F(sub)(a, b);
    }
}

/* From values at the n-th roots of unity, in place, to values at those roots times the 2n-th.
 * Coefficients exist in bit-reversed order only; `twist` has the powers of the 2n-th root over n,
 * in that order. */
static void F(shift)(E *values, size_t n, size_t inner, const E *roots, const E *inverse_roots,
                     const E *twist)
{
    for (size_t length = n; length > 1; length /= 2)
        for (size_t start = 0; start < n; start += length)
            for (size_t j = 0; j < length / 2; j++)
                F(butterfly_down)(values + (start + j) * inner,
                                  values + (start + j + length / 2) * inner, inner,
                                  inverse_roots[j * (n / length)], j != 0);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < inner; k++)
            values[i * inner + k] = F(mul)(values[i * inner + k], twist[i]);
    for (size_t length = 2; length <= n; length *= 2)
        for (size_t start = 0; start < n; start += length)
            for (size_t j = 0; j < length / 2; j++)
                F(butterfly_up)(values + (start + j) * inner,
                                values + (start + j + length / 2) * inner, inner,
                                roots[j * (n / length)], j != 0);
}

static void F(shift_all)(void *values, size_t outer, size_t n, size_t inner, const void *roots,
                         const void *inverse_roots, const void *twist)
{
    for (size_t i = 0; i < outer; i++)
        F(shift)((E *)values + i * n * inner, n, inner, roots, inverse_roots, twist);
}

/* The Lagrange basis of the n-th roots at each point: scaled[i] · Π_{j≠i} (t − root[j]), where
 * scaled is root/n. Without division, so right at the roots themselves. */
static void F(lagrange_all)(const void *points, size_t count, size_t n, const void *roots,
                            const void *scaled, void *out)
{
    const E *root = roots, *scale = scaled;
    for (size_t i = 0; i < count; i++) {
        const E t = ((const E *)points)[i];
        E *weights = (E *)out + i * n, product = 1;
        for (size_t j = 0; j < n; j++) {
            weights[j] = F(mul)(product, scale[j]);
            product = F(mul)(product, F(sub)(t, root[j]));
        }
        product = 1;
        for (size_t j = n; j-- > 0;) {
            weights[j] = F(mul)(weights[j], product);
            product = F(mul)(product, F(sub)(t, root[j]));
        }
    }
}

/* Σ_j weights[i][j] · values[i][j][·] for every i. */
static void F(weighted_all)(const void *weights, const void *values, size_t outer, size_t n,
                            size_t inner, void *out)
{
    const E *weight = weights, *value = values;
    E *total = out;
    memset(out, 0, outer * inner * sizeof(E));
    for (size_t i = 0; i < outer; i++, total += inner)
        for (size_t j = 0; j < n; j++, weight++, value += inner)
            for (size_t k = 0; k < inner; k++)
                total[k] = F(add)(total[k], F(mul)(*weight, value[k]));
}

/* b, b², …, b^count for every b. */
static void F(powers_all)(const void *bases, size_t bases_count, size_t count, void *out)
{
    E *power = out;
    for (size_t i = 0; i < bases_count; i++) {
        const E base = ((const E *)bases)[i];
        E product = base;
        for (size_t j = 0; j < count; j++, product = F(mul)(product, base))
            *power++ = product;
    }
}

/* x[0]·x[1] + x[2]·x[3] + … for every row of 2·pairs. */
static void F(pair_sums_all)(const void *values, size_t rows, size_t pairs, void *out)
{
    const E *x = values;
    for (size_t i = 0; i < rows; i++) {
        E total = 0;
        for (size_t j = 0; j < pairs; j++, x += 2)
            total = F(add)(total, F(mul)(x[0], x[1]));
        ((E *)out)[i] = total;
    }
}
