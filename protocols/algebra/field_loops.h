/* Loops over field vectors; included once for each field, with E the element type and F(name) its
 * functions. */

static void F(add_all)(const uint8_t *a, const uint8_t *b, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n * sizeof(E); i += sizeof(E))
        F(store)(out + i, F(add)(F(load)(a + i), F(load)(b + i)));
}

static void F(sub_all)(const uint8_t *a, const uint8_t *b, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n * sizeof(E); i += sizeof(E))
        F(store)(out + i, F(sub)(F(load)(a + i), F(load)(b + i)));
}

static void F(mul_all)(const uint8_t *a, const uint8_t *b, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n * sizeof(E); i += sizeof(E))
        F(store)(out + i, F(mul)(F(load)(a + i), F(load)(b + i)));
}

/* By Fermat: a^(p − 2), and 0 for 0. */
static void F(inv_all)(const uint8_t *a, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n * sizeof(E); i += sizeof(E)) {
        E power = F(load)(a + i), result = 1;
        for (E exponent = MODULUS - 2; exponent; exponent >>= 1) {
            if (exponent & 1)
                result = F(mul)(result, power);
            power = F(mul)(power, power);
        }
        F(store)(out + i, result);
    }
}

static int F(canonical_all)(const uint8_t *a, size_t n)
{
    int fits = 1;
    for (size_t i = 0; i < n * sizeof(E); i += sizeof(E))
        fits &= F(load)(a + i) < MODULUS;
    return fits;
}

/* values is outer × count × inner; out is outer × inner. */
static void F(sum_all)(const uint8_t *values, uint8_t *out, size_t outer, size_t count,
                       size_t inner)
{
    const size_t row = inner * sizeof(E);
    for (size_t i = 0; i < outer; i++, out += row) {
        memset(out, 0, row);
        for (size_t j = 0; j < count; j++, values += row)
            F(add_all)(out, values, out, inner);
    }
}

/* coefficients is rows × terms, lowest power first; out is rows × count. */
static void F(horner_all)(const uint8_t *coefficients, size_t rows, size_t terms,
                          const uint8_t *points, size_t count, uint8_t *out)
{
    for (size_t i = 0; i < rows; i++, out += count * sizeof(E)) {
        memset(out, 0, count * sizeof(E));
        for (size_t k = terms; k-- > 0;) {
            const E c = F(load)(coefficients + (i * terms + k) * sizeof(E));
            for (size_t j = 0; j < count * sizeof(E); j += sizeof(E))
                F(store)(out + j, F(add)(F(mul)(F(load)(out + j), F(load)(points + j)), c));
        }
    }
}

/* values is rows × count; out is rows. */
static void F(dot_all)(const uint8_t *weights, const uint8_t *values, uint8_t *out, size_t rows,
                       size_t count)
{
    for (size_t i = 0; i < rows; i++) {
        E total = 0;
        for (size_t j = 0; j < count * sizeof(E); j += sizeof(E))
            total = F(add)(total, F(mul)(F(load)(weights + j), F(load)(values + j)));
        values += count * sizeof(E);
        F(store)(out + i * sizeof(E), total);
    }
}
