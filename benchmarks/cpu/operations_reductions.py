"""Rows of reductions, scans and sorts of the table of operations.py."""

import numpy as np
from operations_inputs import (
    CLASSES,
    MATRIX,
    SQUARE,
    VECTOR,
    Operation,
    along,
    booleans,
    images,
    integers,
    matrix,
    named,
    normal,
    pair,
    uniform,
    vector,
    with_nan,
)

FIXED = {"is_differentiable": False}


def small_factors(size):
    """Return a matrix of numbers near one."""
    return (uniform(0.99, 1.01, *MATRIX[size]),)


def boolean_matrix(size):
    """Return a matrix of booleans."""
    return (booleans(*MATRIX[size]),)


def nan_matrix(size):
    """Return a matrix with NaN."""
    return (with_nan(*MATRIX[size]),)


def few_columns(columns):
    """Return a function from a size index to rows of few columns."""
    return lambda size: (normal(max(VECTOR[size] // columns, 1), columns),)


def middle(size):
    """Return an array of three axes."""
    return (normal(*((2, 8, 2), (50, 40, 50), (200, 250, 200))[size]),)


REDUCTIONS = [
    *along("sum mean", (None, 0, 1), matrix),
    *along("max min", (None, 0, 1), matrix, "max=amax min=amin"),
    *along("prod", (0, 1), small_factors),
    *along("sum", (1,), middle, title="middle axis"),
    Operation(
        "sum",
        "all axes but channels",
        images,
        lambda tk, x: tk.ops.sum(x, axis=(0, 1, 2)),
        lambda t, x: x.sum((0, 1, 2)),
        lambda n, x: n.sum(x, axis=(0, 1, 2)),
    ),
    *(
        Operation(
            name,
            "axis 1" if axis else "axis 0",
            matrix,
            lambda tk, x, name=name, axis=axis: getattr(tk.ops, name)(x, axis=axis),
            lambda t, x, name=name, axis=axis: getattr(t, name)(x, axis, correction=0),
            lambda n, x, name=name, axis=axis: getattr(n, name)(x, axis=axis),
        )
        for name in ("var", "std")
        for axis in (0, 1)
    ),
    Operation(
        "moments",
        "axis 1",
        matrix,
        lambda tk, x: tk.ops.moments(x, (1,)),
        lambda t, x: t.var_mean(x, 1, correction=0)[::-1],
        lambda n, x: (n.mean(x, axis=1), n.var(x, axis=1)),
    ),
    Operation(
        "average",
        "with weights",
        lambda size: (normal(*MATRIX[size]), uniform(0.5, 1.5, MATRIX[size][1])),
        lambda tk, x, w: tk.ops.average(x, 1, w),
        lambda t, x, w: (x * w).sum(1) / w.sum(),
        lambda n, x, w: n.average(x, 1, w),
    ),
    *along("argmax argmin", (None, 0, 1), matrix, **FIXED),
    *(
        Operation(
            "argmax",
            f"rows of {columns}",
            few_columns(columns),
            lambda tk, x: tk.ops.argmax(x, axis=-1),
            lambda t, x: t.argmax(x, -1),
            lambda n, x: n.argmax(x, axis=-1),
            **FIXED,
        )
        for columns in (2, 10)
    ),
    *(
        row
        for columns in (2, 10)
        for row in along("sum", (-1,), few_columns(columns), title=f"rows of {columns}")
    ),
    *(
        row
        for columns in (2, 10)
        for row in along(
            "max", (-1,), few_columns(columns), "max=amax", title=f"rows of {columns}"
        )
    ),
    *along("any all", (1,), boolean_matrix, **FIXED),
    *along("count_nonzero", (None, 1), boolean_matrix, **FIXED),
    *along("logsumexp", (1,), matrix, numpy="-"),
    *along("ptp", (1,), matrix, "-", **FIXED),
    Operation(
        "norm",
        "axis 1",
        matrix,
        lambda tk, x: tk.ops.norm(x, axis=1),
        lambda t, x: t.linalg.norm(x, dim=1),
        lambda n, x: n.linalg.norm(x, axis=1),
    ),
    *along("nansum", (None, 1), nan_matrix, **FIXED),
    *along("nanmean", (1,), nan_matrix, **FIXED),
    *along("nanmax nanmin nanprod nanvar nanstd", (1,), nan_matrix, "-", **FIXED),
    *along("nanargmax nanargmin", (1,), nan_matrix, "-", **FIXED),
    *along("nancumsum nancumprod", (1,), nan_matrix, "-", **FIXED),
    *along("nanmedian", (1,), nan_matrix, "-", **FIXED),
    *along("median", (1,), matrix, "-", **FIXED),
    *(
        Operation(
            name,
            "axis 1",
            nan_matrix if name.startswith("nan") else matrix,
            lambda tk, x, name=name, q=q: getattr(tk.ops, name)(x, q, axis=1),
            (lambda t, x, name=name, q=q: getattr(t, name)(x, q, dim=1))
            if "quantile" in name
            else None,
            lambda n, x, name=name, q=q: getattr(n, name)(x, q, axis=1),
            **FIXED,
        )
        for name, q in (
            ("quantile", 0.9),
            ("percentile", 90),
            ("nanquantile", 0.9),
            ("nanpercentile", 90),
        )
    ),
    Operation(
        "trace",
        "",
        lambda size: (normal(*SQUARE[size]),),
        lambda tk, x: tk.ops.trace(x),
        lambda t, x: t.trace(x),
        lambda n, x: n.trace(x),
    ),
    *named(
        "corrcoef",
        lambda size: (normal(*((4, 8), (20, 5000), (20, 500_000))[size]),),
        **FIXED,
    ),
    *named("allclose", pair, **FIXED),
    *named("trapezoid", matrix),
]
SCANS = [
    *along("cumsum", (0, 1), matrix),
    *along("cumprod", (1,), small_factors),
    Operation(
        "cumsum",
        "vector",
        vector,
        lambda tk, x: tk.ops.cumsum(x),
        lambda t, x: t.cumsum(x, 0),
        lambda n, x: n.cumsum(x),
        is_checked=False,
    ),
    *named("diff", matrix),
    Operation(
        "associative_scan",
        "maximum",
        matrix,
        lambda tk, x: tk.ops.associative_scan(tk.ops.maximum, x, axis=1),
        lambda t, x: t.cummax(x, 1)[0],
        lambda n, x: n.maximum.accumulate(x, axis=1),
        **FIXED,
    ),
]
SORTS = [
    *along("sort", (0, 1), matrix),
    *along("argsort", (1,), matrix, **FIXED),
    Operation(
        "sort",
        "vector",
        vector,
        lambda tk, x: tk.ops.sort(x),
        lambda t, x: t.sort(x)[0],
        lambda n, x: n.sort(x),
        **FIXED,
    ),
    Operation(
        "argpartition",
        "axis 1",
        matrix,
        lambda tk, x: tk.ops.argpartition(x, 3),
        None,
        lambda n, x: n.argpartition(x, 3),
        is_checked=False,
        **FIXED,
    ),
    Operation(
        "top_k",
        "4 of each row",
        matrix,
        lambda tk, x: tk.ops.top_k(x, 4)[0],
        lambda t, x: t.topk(x, 4)[0],
    ),
    Operation(
        "top_k",
        "20 of a vocabulary",
        lambda size: (normal(*((1, 32), (2, 50_000), (200, 50_000))[size]),),
        lambda tk, x: tk.ops.top_k(x, 20)[0],
        lambda t, x: t.topk(x, 20)[0],
        **FIXED,
    ),
    Operation(
        "in_top_k",
        "",
        lambda size: (integers(MATRIX[size][1], MATRIX[size][0]), *matrix(size)),
        lambda tk, y, x: tk.ops.in_top_k(y, x, 3),
        lambda t, y, x: (t.topk(x, 3)[1] == y[:, None]).any(1),
        **FIXED,
    ),
    Operation(
        "unique",
        "",
        lambda size: (integers(CLASSES[size], VECTOR[size]),),
        lambda tk, x: tk.ops.unique(x),
        lambda t, x: t.unique(x),
        lambda n, x: n.unique(x),
        is_static=False,
        **FIXED,
    ),
    Operation(
        "searchsorted",
        "",
        lambda size: (
            np.sort(normal(CLASSES[size] * 10)),
            normal(VECTOR[size] // 10 + 1),
        ),
        lambda tk, x, y: tk.ops.searchsorted(x, y),
        lambda t, x, y: t.searchsorted(x, y),
        lambda n, x, y: n.searchsorted(x, y),
        **FIXED,
    ),
    Operation(
        "bincount",
        "",
        lambda size: (integers(CLASSES[size], VECTOR[size]),),
        lambda tk, x: tk.ops.bincount(x, minlength=10),
        lambda t, x: t.bincount(x, minlength=10),
        lambda n, x: n.bincount(x, minlength=10),
        is_static=False,
        **FIXED,
    ),
    Operation(
        "histogram",
        "20 bins",
        vector,
        lambda tk, x: tk.ops.histogram(x, 20)[0],
        lambda t, x: t.histogram(x, 20)[0],
        lambda n, x: n.histogram(x, 20)[0],
        is_checked=False,
        **FIXED,
    ),
]
