"""Rows of products, linear algebra, FFT and random numbers of operations.py."""

import numpy as np
from operations_inputs import (
    HEADS,
    MATRICES,
    MATRIX,
    PRODUCT,
    SIGNALS,
    VECTOR,
    Operation,
    definite,
    integers,
    invertible,
    matrix,
    normal,
    nothing,
    pair,
)


def squares(size):
    """Return two square matrices."""
    n = PRODUCT[size]
    return normal(n, n), normal(n, n)


def product(case, arrays, **options):
    """Return a product of matrices."""
    return Operation(
        "matmul",
        case,
        arrays,
        lambda tk, x, y: tk.ops.matmul(x, y),
        lambda t, x, y: x @ y,
        lambda n, x, y: x @ y,
        **options,
    )


def einsum(case, subscripts, arrays, **options):
    """Return an einsum."""
    return Operation(
        "einsum",
        case or subscripts,
        arrays,
        lambda tk, *xs: tk.ops.einsum(subscripts, *xs),
        lambda t, *xs: t.einsum(subscripts, *xs),
        lambda n, *xs: n.einsum(subscripts, *xs, optimize=True),
        **options,
    )


def batched(rows, inner, columns, numbers):
    """Return a function from a size index to many small matrices."""

    def arrays(size):
        count = VECTOR[size] // numbers + 1
        return normal(count, rows, inner), normal(count, inner, columns)

    return arrays


def points(size):
    """Return two arrays of vectors of three numbers."""
    count = VECTOR[size] // 3 + 1
    return normal(count, 3), normal(count, 3)


PRODUCTS = [
    product("square", squares),
    Operation(
        "matmul",
        "transposed",
        squares,
        lambda tk, x, y: tk.ops.matmul(tk.ops.transpose(x), y),
        lambda t, x, y: x.t() @ y,
        lambda n, x, y: x.T @ y,
    ),
    product(
        "a row by a matrix",
        lambda size: (normal(1, PRODUCT[size] * 2), normal(*(PRODUCT[size] * 2,) * 2)),
    ),
    product(
        "a matrix by a column",
        lambda size: (normal(*(PRODUCT[size] * 2,) * 2), normal(PRODUCT[size] * 2, 1)),
    ),
    product("many 8x8", batched(8, 8, 8, 64)),
    product("many 3x3 by a column", batched(3, 3, 1, 9)),
    product("tall by 8x16", lambda size: (normal(VECTOR[size] // 8, 8), normal(8, 16))),
    product("float64", lambda size: tuple(x.astype("float64") for x in squares(size))),
    product(
        "int32",
        lambda size: tuple(integers(9, *(PRODUCT[size],) * 2) for _ in range(2)),
        is_differentiable=False,
        sizes=(0, 1),
    ),
    Operation(
        "matmul",
        "bfloat16",
        squares,
        lambda tk, x, y: tk.ops.matmul(x, y),
        lambda t, x, y: x @ y,
        dtype="bfloat16",
        is_checked=False,
    ),
    *(
        Operation(
            name,
            "vectors",
            lambda size: (normal(VECTOR[size]), normal(VECTOR[size])),
            lambda tk, x, y, name=name: getattr(tk.ops, name)(x, y),
            lambda t, x, y, name=name: getattr(t, name)(x, y),
            lambda n, x, y, name=name: getattr(n, name)(x, y),
        )
        for name in ("dot", "vdot", "inner")
    ),
    Operation(
        "outer",
        "",
        lambda size: (normal(MATRIX[size][0]), normal(MATRIX[size][1])),
        lambda tk, x, y: tk.ops.outer(x, y),
        lambda t, x, y: t.outer(x, y),
        lambda n, x, y: n.outer(x, y),
    ),
    Operation(
        "tensordot",
        "2 axes",
        lambda size: (
            normal(*((2, 4, 4), (20, 50, 100), (50, 200, 200))[size]),
            normal(*((4, 4, 3), (50, 100, 30), (200, 200, 30))[size]),
        ),
        lambda tk, x, y: tk.ops.tensordot(x, y, 2),
        lambda t, x, y: t.tensordot(x, y, 2),
        lambda n, x, y: n.tensordot(x, y, 2),
    ),
    einsum(
        "scores of attention",
        "bqhd,bkhd->bhqk",
        lambda size: (normal(*HEADS[size]), normal(*HEADS[size])),
    ),
    einsum("", "ij,ij->i", pair),
    einsum(
        "",
        "bi,ijk,bk->bj",
        lambda size: (
            normal(PRODUCT[size], 16),
            normal(16, 16, 16),
            normal(PRODUCT[size], 16),
        ),
    ),
    Operation(
        "cross",
        "",
        points,
        lambda tk, x, y: tk.ops.cross(x, y),
        lambda t, x, y: t.linalg.cross(x, y),
        lambda n, x, y: n.cross(x, y),
    ),
    Operation(
        "cdist",
        "16 coordinates",
        lambda size: (normal(PRODUCT[size], 16), normal(PRODUCT[size], 16)),
        lambda tk, x, y: tk.ops.cdist(x, y),
        lambda t, x, y: t.cdist(x, y),
    ),
    Operation(
        "kron",
        "",
        lambda size: (normal(*(PRODUCT[size] // 8 + 1,) * 2), normal(8, 8)),
        lambda tk, x, y: tk.ops.kron(x, y),
        lambda t, x, y: t.kron(x, y),
        lambda n, x, y: n.kron(x, y),
    ),
    Operation(
        "correlate",
        "32 numbers",
        lambda size: (normal(VECTOR[size]), normal(32)),
        lambda tk, x, y: tk.ops.correlate(x, y),
        lambda t, x, y: t.nn.functional.conv1d(x[None, None], y[None, None])[0, 0],
        lambda n, x, y: n.correlate(x, y, "valid"),
    ),
]


def general(size):
    """Return invertible matrices."""
    return (invertible(*MATRICES[size]),)


def symmetric(size):
    """Return positive definite matrices."""
    return (definite(*MATRICES[size]),)


def many(extent):
    """Return a function from a size index to many small invertible matrices."""

    def arrays(size):
        count = VECTOR[size] // (extent * extent * 10) + 1
        return (normal(count, extent, extent) + 4 * np.eye(extent, dtype="float32"),)

    return arrays


def system(size):
    """Return invertible matrices and right-hand sides."""
    shape = MATRICES[size]
    columns = (2, 8, 32)[size]
    return invertible(*shape), normal(*shape[:2], columns)


def algebra(name, arrays, case="", pick=None, **options):
    """Return a function of torch.linalg and numpy.linalg with the same name."""

    def chosen(value):
        return value if pick is None else value[pick]

    def numpy(n, *xs):
        return chosen(getattr(n.linalg, name)(*xs))

    return Operation(
        name,
        case,
        arrays,
        lambda tk, *xs: chosen(getattr(tk.ops, name)(*xs)),
        lambda t, *xs: chosen(getattr(t.linalg, name)(*xs)),
        numpy if hasattr(np.linalg, name) else None,
        **options,
    )


LINALG = [
    algebra("inv", general),
    algebra("inv", many(3), "many 3x3"),
    algebra("det", many(2), "many 2x2"),
    algebra("det", many(8), "many 8x8", is_checked=False),
    algebra("slogdet", many(2), "many 2x2", 1),
    algebra("slogdet", general, "", 1),
    algebra("solve", system),
    algebra("cholesky", symmetric),
    algebra("qr", general, "R", 1, is_checked=False),
    algebra("svd", general, "values", 1, is_differentiable=False),
    algebra("eigh", symmetric, "values", 0, is_differentiable=False),
    algebra("eig", general, "values", 0, is_checked=False, is_differentiable=False),
    algebra("pinv", general, is_differentiable=False),
    algebra("matrix_rank", general, is_differentiable=False),
    algebra("lu_factor", general, "", 0, is_differentiable=False),
    Operation(
        "logdet",
        "",
        symmetric,
        lambda tk, x: tk.ops.logdet(x),
        lambda t, x: t.logdet(x),
    ),
    Operation(
        "lstsq",
        "",
        lambda size: (
            normal(*((8, 4), (400, 100), (2000, 300))[size]),
            normal((8, 400, 2000)[size], 2),
        ),
        lambda tk, x, y: tk.ops.lstsq(x, y),
        lambda t, x, y: t.linalg.lstsq(x, y)[0],
        lambda n, x, y: n.linalg.lstsq(x, y)[0],
        is_differentiable=False,
    ),
    Operation(
        "expm",
        "",
        lambda size: (normal(*MATRICES[size]) / 20,),
        lambda tk, x: tk.ops.expm(x),
        lambda t, x: t.matrix_exp(x),
        is_differentiable=False,
    ),
    Operation(
        "cholesky_inverse",
        "",
        lambda size: (np.linalg.cholesky(definite(*MATRICES[size][1:])),),
        lambda tk, x: tk.ops.cholesky_inverse(x),
        lambda t, x: t.cholesky_inverse(x),
        is_differentiable=False,
    ),
    Operation(
        "solve_triangular",
        "",
        lambda size: (np.tril(system(size)[0]), system(size)[1]),
        lambda tk, x, y: tk.ops.solve_triangular(x, y, lower=True),
        lambda t, x, y: t.linalg.solve_triangular(x, y, upper=False),
    ),
]


def signals(size):
    """Return rows of real numbers."""
    return (normal(*SIGNALS[size]),)


def waves(size):
    """Return the real and imaginary parts of rows."""
    return normal(*SIGNALS[size]), normal(*SIGNALS[size])


def planes(size):
    """Return the real and imaginary parts of matrices."""
    shape = ((1, 4, 8), (4, 128, 128), (16, 512, 512))[size]
    return normal(*shape), normal(*shape)


def sound(size):
    """Return rows of samples."""
    return (normal(*((1, 1024), (8, 16_000), (32, 160_000))[size]),)


FOURIER = [
    Operation(
        "rfft",
        "",
        signals,
        lambda tk, x: tk.ops.rfft(x)[0],
        lambda t, x: t.fft.rfft(x).real,
        lambda n, x: n.fft.rfft(x).real,
    ),
    Operation(
        "rfft",
        "of prime length 1009",
        lambda size: (normal((1, 100, 2500)[size], 1009),),
        lambda tk, x: tk.ops.rfft(x)[0],
        lambda t, x: t.fft.rfft(x).real,
        lambda n, x: n.fft.rfft(x).real,
    ),
    Operation(
        "irfft",
        "",
        waves,
        lambda tk, x, y: tk.ops.irfft((x, y)),
        lambda t, x, y: t.fft.irfft(t.complex(x, y)),
        lambda n, x, y: n.fft.irfft(x + 1j * y),
    ),
    Operation(
        "fft",
        "",
        waves,
        lambda tk, x, y: tk.ops.fft((x, y))[0],
        lambda t, x, y: t.fft.fft(t.complex(x, y)).real,
        lambda n, x, y: n.fft.fft(x + 1j * y).real,
    ),
    *(
        Operation(
            name,
            "",
            planes,
            lambda tk, x, y, name=name: getattr(tk.ops, name)((x, y))[0],
            lambda t, x, y, name=name: getattr(t.fft, name)(t.complex(x, y)).real,
            lambda n, x, y, name=name: getattr(n.fft, name)(x + 1j * y).real,
        )
        for name in ("fft2", "ifft2")
    ),
    Operation(
        "stft",
        "512, step 128",
        sound,
        lambda tk, x: tk.ops.stft(x, 512, 128, 512, center=False)[0],
        lambda t, x: t.stft(
            x, 512, 128, window=t.hann_window(512), center=False, return_complex=True
        ).real.transpose(1, 2),
    ),
]


def drawn(name, ours, torch, numpy=None, sizes=(0, 1, 2)):
    """Return random numbers of the shape of a matrix, for each size."""
    return [
        Operation(
            f"random.{name}",
            "x".join(map(str, MATRIX[size])),
            nothing,
            lambda tk, shape=MATRIX[size]: ours(tk.random, shape),
            lambda t, shape=MATRIX[size]: torch(t, shape),
            numpy and (lambda n, shape=MATRIX[size]: numpy(GENERATOR, shape)),
            is_differentiable=False,
            is_checked=False,
            sizes=(size,),
        )
        for size in sizes
    ]


GENERATOR = np.random.default_rng(1)
DRAWS = [
    *drawn(
        "uniform",
        lambda r, s: r.uniform(s),
        lambda t, s: t.rand(s),
        lambda g, s: g.random(s, dtype="float32"),
    ),
    *drawn(
        "normal",
        lambda r, s: r.normal(s),
        lambda t, s: t.randn(s),
        lambda g, s: g.standard_normal(s, dtype="float32"),
    ),
    *drawn(
        "truncated_normal",
        lambda r, s: r.truncated_normal(s),
        lambda t, s: t.nn.init.trunc_normal_(t.empty(s)),
    ),
    *drawn(
        "randint",
        lambda r, s: r.randint(s, 0, 100),
        lambda t, s: t.randint(0, 100, s),
        lambda g, s: g.integers(0, 100, s),
    ),
    *drawn(
        "gamma",
        lambda r, s: r.gamma(s, 2.0),
        lambda t, s: t._standard_gamma(t.full(s, 2.0)),
        lambda g, s: g.standard_gamma(2.0, s, dtype="float32"),
    ),
    *drawn(
        "binomial",
        lambda r, s: r.binomial(s, 10, 0.5),
        lambda t, s: t.binomial(t.full(s, 10.0), t.full(s, 0.5)),
        lambda g, s: g.binomial(10, 0.5, s),
    ),
    Operation(
        "random.dropout",
        "",
        matrix,
        lambda tk, x: tk.random.dropout(x, 0.3),
        lambda t, x: t.nn.functional.dropout(x, 0.3),
        is_checked=False,
    ),
    Operation(
        "random.categorical",
        "",
        matrix,
        lambda tk, x: tk.random.categorical(x, 1),
        lambda t, x: t.multinomial(t.softmax(x, -1), 1),
        is_differentiable=False,
        is_checked=False,
    ),
    Operation(
        "random.shuffle",
        "rows",
        matrix,
        lambda tk, x: tk.random.shuffle(x),
        lambda t, x: x[t.randperm(len(x))],
        lambda n, x: GENERATOR.permutation(x),
        is_differentiable=False,
        is_checked=False,
    ),
]
