"""Test invalid arguments: errors name the op, the expected and the received value."""

import numpy as np
import pytest

import toolkit
from toolkit import ops
from toolkit.errors import ArgumentError, DTypeError, ShapeError, TraceError

A = np.ones((2, 3), np.float32)
B = np.ones((4, 5), np.float32)
V = np.ones((3,), np.float32)
I = np.array([0, 1], np.int32)  # noqa: E741

WRONG_SHAPES = [
    ("add", (A, B), r"add.*\(2, 3\) and \(4, 5\)"),
    ("where", (A > 0, B, B), r"where"),
    ("matmul", (A, B), r"matmul.*\(2, 3\).*\(4, 5\)"),
    ("matmul", (A, 1.0), r"matmul.*\(2, 3\) and \(\)"),
    ("dot", (A, B), "tensordot|dot"),
    ("tensordot", (A, B, 1), "tensordot"),
    ("einsum", ("ij,jk->ik", A, B), "einsum.*'ij,jk->ik'.*3 and 4"),
    ("einsum", ("ijk", A), "einsum.*names 3 axes.*has 2"),
    ("einsum", ("ii", A), "einsum.*2 and 3"),
    ("reshape", (A, (4, 2)), r"reshape.*\(2, 3\).*\(4, 2\)"),
    ("reshape", (A, (-1, -1)), "reshape"),
    ("broadcast_to", (A, (3, 2)), "broadcast_to"),
    ("squeeze", (A, 0), r"squeeze: axis 0 of shape \(2, 3\)"),
    ("concatenate", ([A, B],), r"concatenate.*\(2, 3\) and \(4, 5\)"),
    ("concatenate", ([1.0, 2.0],), "concatenate"),
    ("stack", ([A, B],), r"concatenate|stack"),
    ("split", (A, 2, 1), "split: extent 3 is not divisible by 2"),
    ("unstack", (A, 3), "unstack: axis 0 has extent 2, not 3"),
    ("max", (np.ones((0, 2)), 0), "max.*no elements"),
    ("argmax", (np.ones((0,)),), "argmax.*no elements"),
    ("tril", (V,), r"tril.*\(3,\)"),
    ("diag", (np.ones((1, 1, 1)),), "diag.*1 or 2 axes"),
    ("diagonal", (V,), "diagonal.*at least 2"),
    ("repeat", (V, (1, 2)), "repeat.*3"),
    ("pad", (A, ((1, 2), (3, 4), (5, 6))), "pad.*2 axes"),
    ("take_along_axis", (A, I, 0), "take_along_axis.*equal rank"),
    ("scatter_update", (A, I[:, None, None] * [[[0] * 3]], 1.0), "scatter_update"),
    ("scatter_update", (A, I[:, None], B), r"broadcast_to.*\(4, 5\)"),
    ("slice", (A, (0,), (1, 1)), "slice.*`start_indices`.*received 1 and 2"),
    ("slice", (A, (0, 0), (3, 1)), "slice.*does not fit"),
    ("slice_update", (A, (0, 0), B), "slice_update.*does not fit"),
    ("searchsorted", (A, V), "searchsorted.*1 axis"),
    ("top_k", (V, 4), "top_k.*at least 4"),
    ("segment_sum", (A, [0, 1, 2]), "segment_sum.*segment_ids"),
    ("bincount", (I[None, None],), "bincount.*1 or 2 axes"),
    ("average", (A, 0, V), "average: weights"),
    ("correlate", (A, V), "correlate: expected two vectors"),
    ("vander", (A,), "vander.*1 axis"),
    ("cdist", (A, B), "cdist"),
    ("cross", (B, B), "cross.*2 or 3 components"),
    ("rot90", (V,), "rot90.*at least 2 axes"),
    ("rearrange", (A, "a b c -> a b c"), "names 3 axes"),
    ("rearrange", (A, "a 1 -> a"), "an axis of extent 3 does not factor into 1"),
    ("vsplit", (V, 1), "vsplit.*at least 2 axes"),
]


@pytest.mark.parametrize(
    "name, arguments, message", WRONG_SHAPES, ids=[row[0] for row in WRONG_SHAPES]
)
def test_wrong_shapes(name, arguments, message):
    with pytest.raises(ShapeError, match=message):
        getattr(ops, name)(*arguments)


WRONG_ARGUMENTS = [
    ("sum", (A, 2), {}, r"sum: axis 2 is out of bounds: expected one in \[-2, 2\)"),
    ("argmax", (A, -3), {}, "argmax: axis -3 is out of bounds"),
    ("softmax", (A, 5), {}, "softmax: axis 5 is out of bounds"),
    ("one_hot", (I, 3), {"axis": 2}, r"one_hot: axis 2 is out of bounds.*\[-2, 2\)"),
    ("one_hot", (I, 3), {"axis": -3}, "one_hot: axis -3 is out of bounds"),
    ("one_hot", (I, 3), {"axis": 0.5}, "one_hot: expected an integer as an axis.*0.5"),
    ("one_hot", (I, 3), {"axis": "1"}, "one_hot: expected an integer as an axis.*'1'"),
    ("multi_hot", (I, 3), {"axis": 2}, "multi_hot: axis 2|one_hot: axis 2"),
    ("sum", (A, 0.5), {}, "sum: expected an integer as an axis; received 0.5"),
    ("sum", (A, "1"), {}, "sum: expected an integer as an axis; received '1'"),
    ("mean", (A, (0, 1.5)), {}, "mean: expected an integer as an axis; received 1.5"),
    ("argmax", (A, 0.5), {}, "argmax: expected an integer as an axis"),
    ("roll", (A, 1, 0.5), {}, "roll: expected an integer as an axis"),
    ("squeeze", (A, 0.5), {}, "squeeze: expected an integer as an axis"),
    ("flip", (A, 0.5), {}, "flip: expected an integer as an axis"),
    ("norm", (A,), {"axis": (0, 1.5)}, "norm: expected an integer as an axis"),
    ("concatenate", ([A, A],), {"axis": 0.5}, "expected an integer as an axis"),
    ("stack", ([A, A],), {"axis": 0.5}, "expected an integer as an axis"),
    ("split", (A, 2), {"axis": 0.5}, "expected an integer as an axis"),
    ("take", (A, I), {"axis": 0.5}, "expected an integer as an axis"),
    ("cumsum", (A,), {"axis": 0.5}, "expected an integer as an axis"),
    ("sort", (A,), {"axis": 0.5}, "expected an integer as an axis"),
    ("softmax", (A,), {"axis": 0.5}, "expected an integer as an axis"),
    ("median", (A,), {"axis": 0.5}, "expected an integer as an axis"),
    ("logsumexp", (A,), {"axis": 0.5}, "expected an integer as an axis"),
    ("moveaxis", (A, 0.5, 1), {}, "expected an integer as an axis"),
    ("swapaxes", (A, 0.5, 1), {}, "expected an integer as an axis"),
    ("transpose", (A, (0.0, 1.5)), {}, "whole numbers in a shape.*received 1.5"),
    ("zeros", ((1.5, 2),), {}, "whole numbers in a shape.*received 1.5"),
    ("zeros", ((np.inf, 2),), {}, "whole numbers in a shape.*received inf"),
    ("zeros", ((None, 2),), {}, "received None, an unknown extent"),
    ("zeros", ((np.nan, 2),), {}, "whole numbers in a shape.*received nan"),
    ("reshape", (A, (np.float32(1.5), -1)), {}, "whole numbers.*received 1.5"),
    ("unstack", (A,), {"axis": 0.5}, "expected an integer as an axis"),
    ("repeat", (A, 2), {"axis": 0.5}, "expected an integer as an axis"),
    ("transpose", (A, (0, 0)), {}, "transpose.*permutation"),
    ("expand_dims", (A, 4), {}, "expand_dims: axis 4 is out of bounds"),
    ("where", (A > 0, A), {}, "where: `x1` and `x2` either both"),
    ("clip", (A, "a", 1), {}, "a"),
    ("einsum", ("ij,jk", A), {}, "names 2 operands; received 1"),
    ("einsum", ("ij->k", A), {}, "'k' of the result"),
    ("einsum", ("i1->i", A), {}, "'1'.*not a letter"),
    ("einsum", ("ij",), {}, "at least one operand"),
    ("tensordot", (A, A, 3), {}, "tensordot: cannot contract 3 axes"),
    ("pad", (A, 1), {"mode": "mirror"}, "'edge'.*'symmetric'.*received 'mirror'"),
    ("pad", (A, 1), {"mode": "edge", "constant_values": 1}, "constant_values"),
    ("pad", (A, -1), {}, "pad: widths must be >= 0"),
    ("meshgrid", (V,), {"indexing": "yx"}, "'ij', 'xy'; received 'yx'"),
    ("searchsorted", (V, V), {"side": "top"}, "'left', 'right'; received 'top'"),
    ("quantile", (A, 0.5), {"method": "best"}, "'linear'.*received 'best'"),
    ("correlate", (V, V), {"mode": "all"}, "'full', 'same', 'valid'"),
    ("scatter_update", (V, I[:, None], V[:2], "mean"), {}, "'add'.*received 'mean'"),
    ("one_hot", (I, 3), {"sparse": True}, "one_hot.*sparse"),
    (
        "roll",
        (A, (1, 2, 3), (0, 1)),
        {},
        "roll: expected 2 shifts, one for each axis; received 3",
    ),
    ("rot90", (A, 1, (0, 0)), {}, "rot90.*two different axes"),
    ("argpartition", (V, 3), {}, "argpartition: kth=3"),
    ("array_split", (V, 0), {}, "array_split.*received 0"),
    ("histogram", (V, 0), {}, "histogram.*received 0"),
    ("histogram", (V, 3), {"range": (5, 1)}, "must be greater than the first"),
    ("histogram", (V, 3), {"range": (5,)}, "a tuple of two elements"),
    ("concatenate", ([A, A],), {"axis": 10}, "axis 10 is out of bounds"),
    ("select", ([], []), {}, "select"),
    ("rearrange", (A, "a b"), {}, "expected '->'"),
    ("rearrange", (A, "a b -> a"), {}, "same names"),
    ("rearrange", (A, "a (b c) -> a b c"), {}, "except one, need a length"),
    ("rearrange", (A, "a b* -> b a"), {}, "'\\*'.*not a name"),
    ("diff", (V, -1), {}, "diff.*received -1"),
]


@pytest.mark.parametrize(
    "name, arguments, attrs, message",
    WRONG_ARGUMENTS,
    ids=[row[0] for row in WRONG_ARGUMENTS],
)
def test_invalid_arguments_of_ops(name, arguments, attrs, message):
    with pytest.raises((ArgumentError, DTypeError), match=message):
        getattr(ops, name)(*arguments, **attrs)


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("take", (A, [0.5])),
        ("scatter_update", (V, [[0.5]], [1.0])),
        ("bitwise_and", (A, A)),
        ("left_shift", (A, 1)),
        ("gcd", (A, A)),
        ("ldexp", (A, A)),
        ("add", (A, "text")),
        ("cast", (A, "complex32")),
        ("sum", (["a", "b"],)),
    ],
)
def test_wrong_dtypes(name, arguments):
    with pytest.raises(DTypeError):
        getattr(ops, name)(*arguments)


@pytest.mark.parametrize(
    "name, arguments, value, limit",
    [
        ("take", (A, [0, 7], 1), "7", "3"),
        ("take", (A, [-4], 1), "-4", "3"),
        ("take_along_axis", (A, np.array([[9], [0]]), 1), "9", "3"),
        ("scatter_update", (V, [[3]], [1.0]), "3", "3"),
        ("scatter_update", (A, [[0, 5]], [1.0]), "5", "3"),
        ("bincount", ([0, -1],), "1", "1"),
        ("get_item", (V, 3), "3", "3"),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_indices_out_of_range(name, arguments, value, limit, traced):
    function = getattr(ops, name)
    operand, *remaining = arguments
    call = toolkit.function(lambda x: function(x, *remaining)) if traced else function
    if traced and name == "bincount":
        pytest.skip("the extent of the result is not known")
    arguments = (ops.convert_to_tensor(operand),) if traced else arguments
    with pytest.raises(IndexError, match=f"{value}.*{limit}"):
        call(*arguments)


DATA_DEPENDENT = [
    ("nonzero", lambda x: ops.nonzero(x), "where"),
    ("where", lambda x: ops.where(x > 0), "where"),
    ("mask", lambda x: x[x > 0], "where"),
    ("unique", lambda x: ops.unique(x), "unique"),
    ("bincount", lambda x: ops.bincount(ops.cast(x, "int32")), "minlength"),
    ("segment_sum", lambda x: ops.segment_sum(x, ops.cast(x, "int32")), "num_segments"),
    ("repeat", lambda x: ops.repeat(x, ops.cast(x, "int32")), "repeats"),
]


@pytest.mark.parametrize(
    "name, function, advice", DATA_DEPENDENT, ids=[row[0] for row in DATA_DEPENDENT]
)
def test_shapes_that_depend_on_values_cannot_be_traced(name, function, advice):
    function(ops.convert_to_tensor(V))
    with pytest.raises(TraceError, match=advice):
        toolkit.function(function)(ops.convert_to_tensor(V))
