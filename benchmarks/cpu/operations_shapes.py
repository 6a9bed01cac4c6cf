"""Rows of indices, segments, shapes and new arrays of operations.py."""

import numpy as np
from operations_inputs import (
    CLASSES,
    HEADS,
    IMAGES,
    MATRIX,
    SQUARE,
    VECTOR,
    Operation,
    booleans,
    images,
    integers,
    matrix,
    named,
    normal,
    nothing,
    pair,
    vector,
)

VOCABULARY = (16, 1000, 100_000)
FIXED = {"is_differentiable": False}


def boolean_matrix(size):
    """Return a matrix of booleans."""
    return (booleans(*MATRIX[size]),)


def embedding(size):
    """Return a table of vectors and indices of its rows."""
    rows = VOCABULARY[size]
    return normal(rows, 64), integers(rows, MATRIX[size][0] * 2)


def segments(size):
    """Return rows, and the segment of each, in order."""
    rows = MATRIX[size][0]
    return normal(*MATRIX[size]), np.sort(integers(CLASSES[size], rows))


def segment(name, torch):
    """Return the reduction of rows in segments."""
    counts = dict(zip([row[0] for row in MATRIX], CLASSES, strict=True))
    return Operation(
        f"segment_{name}",
        "",
        segments,
        lambda tk, x, i: getattr(tk.ops, f"segment_{name}")(x, i, counts[x.shape[0]]),
        lambda t, x, i: torch(t, x, i, counts[x.shape[0]]),
        is_checked=name == "sum",
        is_differentiable=name == "sum",
    )


def reduce_rows(reduction, initial):
    """Return a reduction of rows by torch."""

    def call(t, x, i, count):
        full = t.full((count, x.shape[1]), initial)
        return full.index_reduce(0, i.long(), x, reduction)

    return call


INDICES = [
    Operation(
        "take",
        "rows",
        embedding,
        lambda tk, x, i: tk.ops.take(x, i, axis=0),
        lambda t, x, i: t.nn.functional.embedding(i, x),
        lambda n, x, i: n.take(x, i, axis=0),
    ),
    Operation(
        "take",
        "columns",
        lambda size: (*matrix(size), integers(MATRIX[size][1], MATRIX[size][1] // 2)),
        lambda tk, x, i: tk.ops.take(x, i, axis=1),
        lambda t, x, i: t.index_select(x, 1, i),
        lambda n, x, i: n.take(x, i, axis=1),
    ),
    Operation(
        "take",
        "numbers",
        lambda size: (*vector(size), integers(VECTOR[size], VECTOR[size])),
        lambda tk, x, i: tk.ops.take(x, i),
        lambda t, x, i: t.index_select(x, 0, i),
        lambda n, x, i: n.take(x, i),
    ),
    Operation(
        "take_along_axis",
        "axis 1",
        lambda size: (
            *matrix(size),
            integers(MATRIX[size][1], *MATRIX[size], dtype="int64"),
        ),
        lambda tk, x, i: tk.ops.take_along_axis(x, i, axis=1),
        lambda t, x, i: t.gather(x, 1, i),
        lambda n, x, i: n.take_along_axis(x, i, axis=1),
    ),
    Operation(
        "get_item",
        "strided slice",
        matrix,
        lambda tk, x: tk.ops.copy(x[::2, 1::3]),
        lambda t, x: x[::2, 1::3].clone(),
        lambda n, x: x[::2, 1::3].copy(),
    ),
    Operation(
        "slice",
        "",
        matrix,
        lambda tk, x: tk.ops.copy(
            tk.ops.slice(x, (1, 1), (x.shape[0] // 2, x.shape[1] // 2))
        ),
        lambda t, x: x[1 : 1 + x.shape[0] // 2, 1 : 1 + x.shape[1] // 2].clone(),
        lambda n, x: x[1 : 1 + x.shape[0] // 2, 1 : 1 + x.shape[1] // 2].copy(),
    ),
    Operation(
        "nonzero",
        "",
        boolean_matrix,
        lambda tk, x: tk.ops.nonzero(x)[0],
        lambda t, x: t.nonzero(x)[:, 0],
        lambda n, x: n.nonzero(x)[0],
        is_static=False,
        **FIXED,
    ),
    Operation(
        "scatter",
        "rows",
        lambda size: (
            integers(VOCABULARY[size], MATRIX[size][0] * 2, 1),
            normal(MATRIX[size][0] * 2, 64),
        ),
        lambda tk, i, x: tk.ops.scatter(i, x, (rows_of(x), 64)),
        lambda t, i, x: t.zeros(rows_of(x), 64).index_add(0, i[:, 0], x),
    ),
    Operation(
        "scatter_update",
        "rows",
        lambda size: (
            normal(VOCABULARY[size], 64),
            integers(VOCABULARY[size], MATRIX[size][0] * 2, 1, dtype="int64"),
            normal(MATRIX[size][0] * 2, 64),
        ),
        lambda tk, x, i, y: tk.ops.scatter_update(x, i, y),
        lambda t, x, i, y: x.index_copy(0, i[:, 0], y),
        is_checked=False,
    ),
    Operation(
        "slice_update",
        "",
        lambda size: (*matrix(size), normal(*(n // 2 for n in MATRIX[size]))),
        lambda tk, x, y: tk.ops.slice_update(x, (1, 1), y),
        lambda t, x, y: replace_slice(t, x, y),
    ),
    segment("sum", lambda t, x, i, k: t.zeros(k, x.shape[1]).index_add(0, i, x)),
    segment("max", reduce_rows("amax", float("-inf"))),
    segment("min", reduce_rows("amin", float("inf"))),
    segment("prod", reduce_rows("prod", 1.0)),
    Operation(
        "one_hot",
        "",
        lambda size: (integers(CLASSES[size], MATRIX[size][0] * 2, dtype="int64"),),
        lambda tk, x: tk.ops.one_hot(x, 1000),
        lambda t, x: t.nn.functional.one_hot(x, 1000).float(),
        lambda n, x: n.eye(1000, dtype="float32")[x],
        **FIXED,
    ),
    Operation(
        "unravel_index",
        "",
        lambda size: (integers(VECTOR[size], VECTOR[size] // 10 + 1, dtype="int64"),),
        lambda tk, x: tk.ops.unravel_index(x, (5000, 4000)),
        lambda t, x: t.unravel_index(x, (5000, 4000)),
        lambda n, x: n.unravel_index(x, (5000, 4000)),
        **FIXED,
    ),
]


def rows_of(x):
    """Return the rows of the table, by the number of updates."""
    return VOCABULARY[[2 * row[0] for row in MATRIX].index(x.shape[0])]


def replace_slice(t, x, y):
    """Return x with y from (1, 1) on, by torch."""
    copy = x.clone()
    copy[1 : 1 + y.shape[0], 1 : 1 + y.shape[1]] = y
    return copy


def joined(name, case="", torch="", numpy="", **options):
    """Return a function that joins two matrices."""
    return Operation(
        name,
        case,
        pair,
        lambda tk, *xs: getattr(tk.ops, name)(list(xs), **options),
        lambda t, *xs: getattr(t, torch or name)(
            list(xs), **{key.replace("axis", "dim"): v for key, v in options.items()}
        ),
        lambda n, *xs: getattr(n, numpy or name)(list(xs), **options),
    )


def split(name, operand, sections):
    """Return a function that splits an array, and the sum of the parts."""
    return Operation(
        name,
        "and add",
        operand,
        lambda tk, x: tk.ops.add(*getattr(tk.ops, name)(x, sections)),
        lambda t, x: t.add(*getattr(t, PARTS.get(name, name))(x, sections)),
        lambda n, x: n.add(*getattr(n, name)(x, sections)),
    )


PARTS = {"split": "tensor_split", "array_split": "tensor_split"}


def copied(name, case, ours, torch, numpy, arrays=matrix, **options):
    """Return a function whose result is copied, if it is a view."""
    return Operation(
        name,
        case,
        arrays,
        lambda tk, *xs: tk.ops.copy(ours(tk.ops, *xs)),
        lambda t, *xs: torch(t, *xs).contiguous(),
        numpy and (lambda n, *xs: n.ascontiguousarray(numpy(n, *xs))),
        **options,
    )


def square(size):
    """Return a square matrix."""
    return (normal(*SQUARE[size]),)


def cubes(size):
    """Return an array of three axes, of which the last is even."""
    return (normal(*((2, 4, 4), (50, 50, 40), (250, 400, 100))[size]),)


SHAPES = [
    copied(
        "transpose",
        "",
        lambda o, x: o.transpose(x),
        lambda t, x: x.t(),
        lambda n, x: x.T,
    ),
    copied(
        "transpose",
        "channels first",
        lambda o, x: o.transpose(x, (0, 3, 1, 2)),
        lambda t, x: x.permute(0, 3, 1, 2),
        lambda n, x: x.transpose(0, 3, 1, 2),
        images,
    ),
    copied(
        "swapaxes",
        "heads",
        lambda o, x: o.swapaxes(x, 1, 2),
        lambda t, x: t.swapaxes(x, 1, 2),
        lambda n, x: n.swapaxes(x, 1, 2),
        lambda size: (normal(*HEADS[size]),),
    ),
    copied(
        "moveaxis",
        "channels first",
        lambda o, x: o.moveaxis(x, -1, 1),
        lambda t, x: t.moveaxis(x, -1, 1),
        lambda n, x: n.moveaxis(x, -1, 1),
        images,
    ),
    copied(
        "diagonal",
        "",
        lambda o, x: o.diagonal(x),
        lambda t, x: t.diagonal(x),
        lambda n, x: n.diagonal(x),
        square,
    ),
    copied(
        "broadcast_to",
        "rows",
        lambda o, x: o.broadcast_to(x, (100, *x.shape)),
        lambda t, x: t.broadcast_to(x, (100, *x.shape)),
        lambda n, x: n.broadcast_to(x, (100, *x.shape)),
        lambda size: (normal(max(VECTOR[size] // 100, 1)),),
    ),
    copied(
        "flip",
        "axis 1",
        lambda o, x: o.flip(x, 1),
        lambda t, x: t.flip(x, (1,)),
        lambda n, x: n.flip(x, 1),
    ),
    copied(
        "fliplr",
        "",
        lambda o, x: o.fliplr(x),
        lambda t, x: t.fliplr(x),
        lambda n, x: n.fliplr(x),
    ),
    copied(
        "flipud",
        "",
        lambda o, x: o.flipud(x),
        lambda t, x: t.flipud(x),
        lambda n, x: n.flipud(x),
    ),
    copied(
        "rot90",
        "",
        lambda o, x: o.rot90(x),
        lambda t, x: t.rot90(x),
        lambda n, x: n.rot90(x),
    ),
    copied(
        "roll",
        "3 in axis 1",
        lambda o, x: o.roll(x, 3, 1),
        lambda t, x: t.roll(x, 3, 1),
        lambda n, x: n.roll(x, 3, 1),
    ),
    joined("concatenate", "axis 0", axis=0),
    joined("concatenate", "axis 1", axis=1),
    joined("stack", "axis 0", axis=0),
    joined("stack", "last axis", axis=-1),
    joined("hstack"),
    joined("vstack"),
    joined("dstack"),
    Operation(
        "append",
        "axis 0",
        pair,
        lambda tk, x, y: tk.ops.append(x, y, 0),
        lambda t, x, y: t.cat([x, y]),
        lambda n, x, y: n.append(x, y, 0),
    ),
    split("split", matrix, 2),
    split("array_split", matrix, 2),
    split("hsplit", matrix, 2),
    split("vsplit", matrix, 2),
    split("dsplit", cubes, 2),
    Operation(
        "unstack",
        "and add",
        lambda size: (normal(2, VECTOR[size] // 2),),
        lambda tk, x: tk.ops.add(*tk.ops.unstack(x)),
        lambda t, x: t.add(*t.unbind(x)),
        lambda n, x: n.add(*x),
    ),
    Operation(
        "tile",
        "(2, 2)",
        matrix,
        lambda tk, x: tk.ops.tile(x, (2, 2)),
        lambda t, x: t.tile(x, (2, 2)),
        lambda n, x: n.tile(x, (2, 2)),
    ),
    *(
        Operation(
            "repeat",
            f"axis {axis}",
            matrix,
            lambda tk, x, axis=axis: tk.ops.repeat(x, 2, axis=axis),
            lambda t, x, axis=axis: t.repeat_interleave(x, 2, axis),
            lambda n, x, axis=axis: n.repeat(x, 2, axis=axis),
        )
        for axis in (0, 1)
    ),
    *(
        Operation(
            "pad",
            mode,
            lambda size: (normal(*(IMAGES[size][i] for i in (0, 3, 1, 2))),),
            lambda tk, x, mode=mode: tk.ops.pad(
                x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode
            ),
            lambda t, x, mode=mode: t.nn.functional.pad(x, (1, 1, 1, 1), mode=mode),
            lambda n, x, mode=mode: n.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode),
        )
        for mode in ("constant", "reflect")
    ),
    *named("tril triu", square),
    *named("diag diagflat", lambda size: (normal((6, 316, 3162)[size]),)),
    Operation(
        "vander",
        "8 powers",
        lambda size: (normal(max(VECTOR[size] // 8, 1)),),
        lambda tk, x: tk.ops.vander(x, 8),
        lambda t, x: t.vander(x, 8),
        lambda n, x: n.vander(x, 8),
        **FIXED,
    ),
    *named("copy", matrix, "copy=clone"),
    Operation(
        "meshgrid",
        "and add",
        lambda size: (normal(MATRIX[size][0]), normal(MATRIX[size][1])),
        lambda tk, x, y: tk.ops.add(*tk.ops.meshgrid(x, y, indexing="ij")),
        lambda t, x, y: t.add(*t.meshgrid(x, y, indexing="ij")),
        lambda n, x, y: n.add(*n.meshgrid(x, y, indexing="ij")),
    ),
    *named("zeros_like ones_like", matrix, **FIXED),
    Operation(
        "full_like",
        "",
        matrix,
        lambda tk, x: tk.ops.full_like(x, 2.0),
        lambda t, x: t.full_like(x, 2.0),
        lambda n, x: n.full_like(x, 2.0),
        **FIXED,
    ),
]


def created(name, ours, torch, numpy, case=""):
    """Return a function of a number of elements, without arguments, for each size."""
    return [
        Operation(
            name,
            case or f"{count:.0e} elements",
            nothing,
            lambda tk, count=count: ours(tk.ops, count),
            lambda t, count=count: torch(t, count),
            lambda n, count=count: numpy(n, count),
            is_differentiable=False,
            sizes=(size,),
        )
        for size, count in enumerate(VECTOR)
    ]


CREATION = [
    *created(
        "arange",
        lambda o, k: o.arange(k, dtype="float32"),
        lambda t, k: t.arange(k, dtype=t.float32),
        lambda n, k: n.arange(k, dtype="float32"),
    ),
    *created(
        "linspace",
        lambda o, k: o.linspace(0.0, 1.0, k),
        lambda t, k: t.linspace(0, 1, k),
        lambda n, k: n.linspace(0, 1, k, dtype="float32"),
    ),
    *created(
        "logspace",
        lambda o, k: o.logspace(0.0, 1.0, k),
        lambda t, k: t.logspace(0, 1, k),
        lambda n, k: n.logspace(0, 1, k, dtype="float32"),
    ),
    *created(
        "full",
        lambda o, k: o.full((k,), 2.0),
        lambda t, k: t.full((k,), 2.0),
        lambda n, k: n.full((k,), 2.0, "float32"),
    ),
    *created(
        "ones",
        lambda o, k: o.ones((k,)),
        lambda t, k: t.ones(k),
        lambda n, k: n.ones(k, "float32"),
    ),
    *created(
        "zeros",
        lambda o, k: o.zeros((k,)),
        lambda t, k: t.zeros(k),
        lambda n, k: n.zeros(k, "float32"),
    ),
    *created(
        "eye",
        lambda o, k: o.eye(int(k**0.5)),
        lambda t, k: t.eye(int(k**0.5)),
        lambda n, k: n.eye(int(k**0.5), dtype="float32"),
    ),
    *created(
        "tri",
        lambda o, k: o.tri(int(k**0.5)),
        lambda t, k: t.ones(int(k**0.5), int(k**0.5)).tril(),
        lambda n, k: n.tri(int(k**0.5), dtype="float32"),
    ),
    *created(
        "hanning",
        lambda o, k: o.hanning(k),
        lambda t, k: t.hann_window(k, periodic=False),
        lambda n, k: n.hanning(k),
    ),
    *created(
        "hamming",
        lambda o, k: o.hamming(k),
        lambda t, k: t.hamming_window(k, periodic=False),
        lambda n, k: n.hamming(k),
    ),
    *created(
        "blackman",
        lambda o, k: o.blackman(k),
        lambda t, k: t.blackman_window(k, periodic=False),
        lambda n, k: n.blackman(k),
    ),
    *created(
        "bartlett",
        lambda o, k: o.bartlett(k),
        lambda t, k: t.bartlett_window(k, periodic=False),
        lambda n, k: n.bartlett(k),
    ),
    *created(
        "kaiser",
        lambda o, k: o.kaiser(k, 5.0),
        lambda t, k: t.kaiser_window(k, periodic=False, beta=5.0),
        lambda n, k: n.kaiser(k, 5.0),
    ),
]
