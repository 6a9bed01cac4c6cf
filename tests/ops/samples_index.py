"""Samples of indexing, gathering, scattering and sorting."""

import numpy as np

from tests.ops.table import booleans, distinct, integers, sample, uniform

_x = distinct((3, 4, 5))
_mask = booleans((3, 4))


def item(*key, x=_x, **options):
    """Return a row of indexing: x[key]."""
    return sample("get_item", x, key, numpy=lambda x, k: x[_plain(k)], **options)


def _plain(key):
    return tuple(np.asarray(k) if isinstance(k, list) else k for k in key)


INDEXING = [
    item(0),
    item(-1, 2),
    item(1, 2, 3),
    item(..., 2),
    item(slice(1, None), slice(None, None, 2), slice(None, None, -1)),
    item(slice(5, 2)),
    item(slice(-2, None), None, ..., None),
    item(0, ..., slice(4, 0, -3)),
    item(np.array([0, 2, -1])),
    item([2, 0, 2]),
    item(np.array([[0, 1], [2, 0]])),
    item(slice(None), np.array([1, 3]), slice(None)),
    item(np.array([0, 1]), np.array([1, -1])),
    item(np.array([0, 1]), slice(None), np.array([1, -1])),
    item(0, slice(None), np.array([1, 2])),
    item(0, np.array([1, 2])),
    item(np.array([[0], [1]]), np.array([1, 2, 3])),
    item(np.array([0, 1]), None, np.array([1, -1])),
    item(np.array(1), slice(None), np.array(2)),
    item(np.zeros((0,), np.int32)),
    item(_mask, traced=False),
    item(_x[0, 0] > 0, x=_x[0, 0], traced=False),
    item(slice(None), _x[0, :, 0] > 0, traced=False),
    item(x=distinct(())),
    item(None, x=distinct(())),
    item(slice(0, 0), x=np.zeros((0, 3))),
    item(2, x=integers(0, 9, (4,))),
]


def take_along(x, indices, axis=None):
    return np.take_along_axis(x, indices, axis)


def scattered(x, indices, updates, mode=None):
    """Update a copy of x at indices (n, k) with NumPy."""
    x = np.array(x)
    where = tuple(np.moveaxis(np.asarray(indices), -1, 0))
    ufunc = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}
    if mode is None:
        x[where] = updates
    else:
        ufunc[mode].at(x, where, updates)
    return x


def updated(x, start, u):
    x = np.array(x)
    x[tuple(slice(i, i + n) for i, n in zip(start, np.shape(u), strict=True))] = u
    return x


_rows = np.array([[0], [2], [0], [-1]], np.int32)
_cells = np.array([[0, 1], [2, 3], [0, 1]], np.int32)
_segments = np.array([0, 2, 0, -1, 1, 9], np.int32)


def segments(name, ufunc, start):
    def reference(x, ids, n):
        y = np.full((n, *x.shape[1:]), start, x.dtype)
        is_valid = (ids >= 0) & (ids < n)
        ufunc.at(y, ids[is_valid], x[is_valid])
        return y

    return [
        sample(name, distinct((6, 2)) + 0.01, _segments, 3, numpy=reference),
        sample(name, distinct((6,)), _segments, 5, numpy=reference, order=0),
    ]


GATHERING = [
    sample("take", distinct((3, 4)), np.array([0, 2, 0, -1], np.int32), axis=0),
    sample("take", distinct((3, 4)), np.array([[1], [3]]), axis=1),
    sample("take", distinct((3, 4)), np.array([11, 0])),
    sample("take", distinct((3, 4)), np.zeros((0,), np.int32), axis=1),
    sample("take", distinct((3, 4)), 2, axis=-1),
    sample("take_along_axis", distinct((3, 4)), integers(0, 3, (2, 4)), axis=0),
    sample("take_along_axis", distinct((3, 4)), integers(-4, 4, (3, 6)), axis=1),
    sample(
        "take_along_axis",
        distinct((3, 4)),
        integers(0, 12, (5,)),
        numpy=lambda x, i: x.ravel()[i],
    ),
    sample(
        "take_along_axis",
        distinct((3, 1)),
        integers(0, 3, (1, 4)),
        axis=0,
        numpy=lambda x, i: np.take_along_axis(np.repeat(x, 4, 1), i, 0),
    ),
    *[
        sample(
            "scatter_update",
            distinct((3, 4)),
            indices,
            uniform(-2, 2, shape),
            *mode,
            numpy=scattered,
        )
        for indices, shape in ((_rows, (4, 4)), (_cells, (3,)))
        for mode in ((), ("add",), ("max",), ("min",), ("mul",))
    ],
    sample(
        "scatter_update",
        integers(0, 9, (5,)),
        _rows,
        integers(0, 9, (4,)),
        "add",
        numpy=scattered,
    ),
    sample(
        "scatter",
        _cells,
        distinct((3,)),
        (3, 4),
        numpy=lambda i, v, s: scattered(np.zeros(s), i, v, "add"),
    ),
    sample(
        "slice", distinct((4, 5)), (1, 2), (2, 3), numpy=lambda x, s, n: x[1:3, 2:5]
    ),
    sample(
        "slice",
        distinct((4, 5)),
        np.array([1, 3]),
        (2, 2),
        numpy=lambda x, s, n: x[1:3, 3:5],
    ),
    sample("slice", distinct((4,)), [np.array(9)], (2,), numpy=lambda x, s, n: x[2:]),
    sample(
        "slice", distinct((4, 5)), (1, 2), (2, -1), numpy=lambda x, s, n: x[1:3, 2:]
    ),
    sample("slice_update", distinct((4, 5)), (1, 2), distinct((2, 3)), numpy=updated),
    sample(
        "slice_update", distinct((4,)), [np.array(1)], distinct((2,)), numpy=updated
    ),
    sample("nonzero", integers(0, 2), traced=False, dtype=("int32", "int32")),
    sample("where", booleans(), traced=False, dtype=("int32", "int32")),
    sample(
        "one_hot",
        np.array([0, 2, -1, 5]),
        3,
        dtype="float32",
        numpy=lambda x, n: (x[:, None] == np.arange(n)) * 1.0,
    ),
    sample(
        "one_hot",
        integers(0, 3, (2, 2)),
        3,
        axis=1,
        dtype="float32",
        numpy=lambda x, n: np.moveaxis(np.eye(n)[x], -1, 1),
    ),
    sample(
        "multi_hot",
        np.array([[0, 2], [1, 1]]),
        4,
        dtype="float32",
        numpy=lambda x, n: np.eye(n)[x].max(1),
    ),
    sample(
        "multi_hot",
        np.array([0, 2]),
        4,
        dtype="float32",
        numpy=lambda x, n: np.eye(n)[x].max(0),
    ),
    sample("bincount", np.array([0, 3, 3, 1], np.int32), traced=False),
    sample("bincount", np.array([0, 3, 3, 1], np.int32), minlength=6),
    sample("bincount", np.array([0, 2, 2], np.int32), uniform(0, 1, (3,)), 4),
    sample(
        "bincount",
        np.array([[0, 2], [1, 1]]),
        minlength=3,
        numpy=lambda x: np.array([[1, 0, 1], [0, 2, 0]]),
    ),
    *segments("segment_sum", np.add, 0),
    *segments("segment_prod", np.multiply, 1),
    *segments("segment_max", np.maximum, -np.inf),
    *segments("segment_min", np.minimum, np.inf),
    sample("unravel_index", np.array([5, 11, 0]), (3, 4), dtype=("int64", "int64")),
]

_sorted = np.array([-1.0, 0.0, 0.5, 0.5, 2.0])


def nan_first(x):
    """Return the descending order of rows; NaN is the largest."""
    return np.argsort(np.where(np.isnan(x), -np.inf, -x), axis=-1, kind="stable")


SORTING = [
    sample("sort", distinct((3, 4))),
    sample("sort", distinct((3, 4)), axis=0),
    sample("sort", distinct((3, 4)), axis=None),
    sample("sort", np.array([2.0, np.nan, -1.0]), order=0),
    sample("sort", integers(0, 4, (3, 5))),
    sample("argsort", distinct((3, 4)), axis=1),
    sample("argsort", distinct((3, 4)), axis=None),
    sample(
        "argsort", integers(0, 3, (20,)), numpy=lambda x: np.argsort(x, kind="stable")
    ),
    sample("argpartition", distinct((5,)), 2, numpy=lambda x, k: np.argsort(x)),
    sample(
        "top_k",
        distinct((3, 5)),
        2,
        dtype=("float", "int32"),
        numpy=lambda x, k: (-np.sort(-x)[:, :k], np.argsort(-x)[:, :k]),
    ),
    sample(
        "top_k",
        np.array([1, 3, 3, 2], np.int32),
        3,
        dtype=("int32", "int32"),
        numpy=lambda x, k: (np.array([3, 3, 2]), np.array([1, 2, 3])),
    ),
    sample(  # large enough for the selection by groups; equal ones, and NaN
        "top_k",
        np.where(np.arange(700) % 97 == 5, np.nan, np.arange(700) * 37 % 83).reshape(
            2, 350
        ),
        5,
        order=0,
        dtype=("float", "int32"),
        numpy=lambda x, k: (
            np.take_along_axis(x, nan_first(x)[:, :k], -1),
            nan_first(x)[:, :k],
        ),
    ),
    sample(
        "top_k",
        np.arange(1000, dtype=np.int32) * 7 % 10,
        12,
        dtype=("int32", "int32"),
        numpy=lambda x, k: (np.full(k, 9), np.flatnonzero(x == 9)[:k]),
    ),
    sample(
        "in_top_k",
        np.array([2, 0]),
        np.array([[0.1, 0.2, 0.3], [0.1, 0.3, 0.2]]),
        2,
        numpy=lambda t, p, k: np.array([True, False]),
    ),
    sample("searchsorted", _sorted, distinct((2, 3))),
    sample("searchsorted", _sorted, np.array([0.5, -1.0, 9.0]), side="right"),
    sample("searchsorted", np.array([1, 3, 5], np.int32), np.array([3, 0], np.int32)),
    sample("digitize", distinct((2, 3)), _sorted),
    sample("isin", integers(0, 5), np.array([1, 3], np.int32)),
    sample("isin", distinct((4,)), np.zeros((0,)), invert=True),
    sample("unique", integers(0, 4), traced=False),
    sample(
        "unique",
        np.array([3, 1, 3, 2], np.int32),
        traced=False,
        return_index=True,
        return_inverse=True,
        return_counts=True,
        dtype=("int32",) * 4,
    ),
]

SAMPLES = INDEXING + GATHERING + SORTING
