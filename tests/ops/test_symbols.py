"""Test ops of symbols with partly unknown extents."""

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import ops
from toolkit.errors import ArgumentError, ShapeError, TraceError, WrongExtentError
from toolkit.ops.symbolic import KerasTensor

X = KerasTensor((None, 4, 6))
Y = KerasTensor((None, 6, 3))
I = KerasTensor((None, 4), "int32")  # noqa: E741
A = KerasTensor((2, None))

CASES = [
    ("operators", lambda: (2 * X - 1) ** 2 > X, (None, 4, 6), "bool"),
    ("matmul", lambda: X @ Y, (None, 4, 3), "float32"),
    ("einsum", lambda: ops.einsum("bij,bjk->bki", X, Y), (None, 3, 4), "float32"),
    ("sum", lambda: ops.sum(X, axis=1), (None, 6), "float32"),
    ("sum of all", lambda: ops.sum(X), (), "float32"),
    ("mean over the batch", lambda: ops.mean(X, axis=0), (4, 6), "float32"),
    ("argmax", lambda: ops.argmax(X, axis=-1), (None, 4), "int32"),
    ("flatten", lambda: ops.reshape(X, (-1, 24)), (None, 24), "float32"),
    ("reshape", lambda: ops.reshape(X, (-1, 2, 3)), (None, 2, 3), "float32"),
    ("transpose", lambda: ops.transpose(X), (6, 4, None), "float32"),
    ("transposed", lambda: X.T, (6, 4, None), "float32"),
    ("concatenate", lambda: ops.concatenate([X, X], 0), (None, 4, 6), "float32"),
    ("concatenate 1", lambda: ops.concatenate([X, X], 1), (None, 8, 6), "float32"),
    ("item", lambda: X[:, 0], (None, 6), "float32"),
    ("items", lambda: X[:, ::2, None, -1], (None, 2, 1), "float32"),
    ("first of the batch", lambda: X[0], (4, 6), "float32"),
    ("without the last", lambda: X[:-1], (None, 4, 6), "float32"),
    ("index array", lambda: X[:, [0, 2, 0]], (None, 3, 6), "float32"),
    ("index symbol", lambda: ops.ones((9, 5))[I], (None, 4, 5), "float32"),
    ("take", lambda: ops.take(ops.ones((9, 5)), I, axis=0), (None, 4, 5), "float32"),
    ("one_hot", lambda: ops.one_hot(I, 7), (None, 4, 7), "float32"),
    ("top_k", lambda: ops.top_k(X, 2)[1], (None, 4, 2), "int32"),
    ("cast", lambda: ops.cast(X, "float16"), (None, 4, 6), "float16"),
    ("pad", lambda: ops.pad(X, ((0, 0), (1, 2), (0, 0))), (None, 7, 6), "float32"),
    ("repeat", lambda: ops.repeat(X, 3, axis=0), (None, 4, 6), "float32"),
    ("where", lambda: ops.where(X > 0, X, 0.0), (None, 4, 6), "float32"),
    ("stack", lambda: ops.stack([X, X], axis=1), (None, 2, 4, 6), "float32"),
    ("split", lambda: ops.split(X, 2, axis=1)[1], (None, 2, 6), "float32"),
    ("unstack", lambda: ops.unstack(X, axis=1)[3], (None, 6), "float32"),
    ("zeros_like", lambda: ops.zeros_like(X, "int32"), (None, 4, 6), "int32"),
    ("nonzero", lambda: ops.nonzero(X)[2], (None,), "int32"),
    ("unique", lambda: ops.unique(X), (None,), "float32"),
    ("unique of two", lambda: ops.unique(X, axis=1, size=2), (None, 2, 6), "float32"),
    ("inverse", lambda: ops.unique(I, return_inverse=True)[1], (None, 4), "int32"),
    ("bincount", lambda: ops.bincount(I), (None, None), "int32"),
    ("mask", lambda: X[X > 0], (None,), "float32"),
    ("first five", lambda: I[:5], (None, 4), "int32"),
    ("diag", lambda: ops.diag(I), (None,), "int32"),
    ("broadcast", lambda: KerasTensor((None, 3)) + A, (2, 3), "float32"),
    (
        "join",
        lambda: ops.concatenate([I, KerasTensor((2, None), "int32")]),
        (None, 4),
        "int32",
    ),
    ("fixed", lambda: ops.reshape(I, (2, 2)), (2, 2), "int32"),
    ("cond", lambda: ops.cond(ops.any(X), lambda: 1.0, lambda: 2.0), (), "float32"),
    (
        "while_loop",
        lambda: ops.while_loop(ops.any, lambda x: x - 1, X),
        (None, 4, 6),
        "float32",
    ),
    (
        "fori_loop",
        lambda: ops.fori_loop(0, 5, lambda i, x: x + i, I),
        (None, 4),
        "int32",
    ),
    (
        "switch",
        lambda: ops.switch(I[0, 0], [ops.exp, ops.log], X),
        (None, 4, 6),
        "float32",
    ),
    ("map", lambda: ops.map(ops.sum, X), (None,), "float32"),
    ("vectorized_map", lambda: ops.vectorized_map(ops.sum, X), (None,), "float32"),
    ("scan", lambda: ops.scan(lambda c, x: (c, x[0]), 0, X)[1], (None, 6), "float32"),
    ("convert_to_tensor", lambda: ops.convert_to_tensor(X), (None, 4, 6), "float32"),
]


@pytest.mark.parametrize(
    "name, call, shape, dtype", CASES, ids=[case[0] for case in CASES]
)
def test_unknown_extents(name, call, shape, dtype):
    y = call()
    assert isinstance(y, KerasTensor)
    assert (y.shape, y.dtype) == (shape, dtype)


def test_properties_of_symbols():
    assert ops.shape(X) == (None, 4, 6)
    assert (ops.ndim(X), ops.size(X), ops.dtype(X)) == (3, None, "float32")
    assert not ops.is_tensor(X)


def test_messages_show_unknown_extents_as_none():
    with pytest.raises(ShapeError, match=r"\(None, 4, 6\)"):
        ops.matmul(X, ops.ones((5, 5)))


@pytest.mark.parametrize("axis", [None, 1])
def test_unstacking_an_unknown_number_is_refused(axis):
    with pytest.raises(ShapeError, match="unknown extent"):
        ops.unstack(KerasTensor((None, None)), axis=axis or 0)


@pytest.mark.parametrize("op", [ops.nonzero, ops.unique])
def test_ops_that_need_values_cannot_be_traced(op):
    with pytest.raises(TraceError, match=f"{op.__name__}: .* depends on values"):
        toolkit.function(op)(ops.ones((3,)))


def test_vectorize():
    product = ops.vectorize(
        lambda a, b, scale: scale * ops.sum(a * b, axis=-1),
        excluded={2},
        signature="(m,n),(n)->(m)",
    )
    y = product(ops.ones((5, 2, 3)), ops.ones((3,)), 2.0)
    assert y.tolist() == [[6.0, 6.0]] * 5
    with pytest.raises(ArgumentError, match="expected 2 arguments"):
        product(ops.ones((2, 3)))
    with pytest.raises(ArgumentError, match="expected a signature"):
        ops.vectorize(abs, signature="m,n")


class Routed(toolkit.layers.Layer):
    """A layer that assumes a batch of 8, like some layers, and returns its input."""

    def call(self, x):
        rows = ops.reshape(x, (8 * 3, 2))
        return ops.reshape(rows * 2.0, (ops.shape(x)[0], 3, 2))


def test_reshape_may_determine_an_unknown_extent():
    x = toolkit.Input((3, 2))
    assert ops.reshape(x, (24, 2)).shape == (24, 2)
    model = toolkit.Model(x, Routed()(x))
    assert model.output_shape == (None, 3, 2)
    array = np.arange(48, dtype="float32").reshape(8, 3, 2)
    assert_close(model.predict(array, batch_size=8, verbose=0), array * 2)
    with pytest.raises(ShapeError, match=r"reshape: cannot reshape \(4, 3, 2\)"):
        model(array[:4])


@pytest.mark.parametrize("shape", [(25, 2), (7, 7)])
def test_reshape_that_fits_no_batch_is_refused(shape):
    with pytest.raises(ShapeError, match="reshape: cannot reshape"):
        Routed().call(toolkit.Input((5, 2)))
    with pytest.raises(ShapeError, match="reshape: cannot reshape"):
        ops.reshape(toolkit.Input((3, 2)), shape)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ops.squeeze(KerasTensor((None, 1)), axis=0),
        lambda: ops.det(KerasTensor((None, None, 20))),
        lambda: ops.cholesky(KerasTensor((None, None, 20))),
        lambda: ops.solve(KerasTensor((None, 20, 20)), KerasTensor((None, None, 5))),
    ],
)
def test_unknown_extent_is_not_assumed_to_be_the_required_one(call):
    with pytest.raises(WrongExtentError, match="None"):
        call()


def test_position_out_of_range_is_an_index_error_and_a_value_error():
    for error in (IndexError, ValueError):
        with pytest.raises(error, match=r"index 17 .* axis 1 .* \(None, 5, 16\)"):
            KerasTensor((None, 5, 16))[:, 17]
        with pytest.raises(error, match="index 4 is out of range for axis 0"):
            ops.ones((3,))[4]
