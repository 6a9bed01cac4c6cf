"""Test merge layers against NumPy: ranks, masks and refusals."""

import numpy as np
import pytest

import toolkit
from tests.compiler.graphs import op_names, trace_of
from tests.helpers import assert_close
from toolkit import layers, ops
from toolkit.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
A, B, C = (RNG.normal(size=(2, 4, 3)).astype("float32") for _ in range(3))
# Positions at which one, two, three or none of the inputs are unmasked.
M, N, K = np.array([[[1, 1, 0, 0]] * 2, [[1, 0, 1, 0]] * 2, [[0, 1, 1, 0]] * 2], bool)


def masked(x, mask):
    """Return a tensor that carries a mask."""
    x = ops.convert_to_tensor(x)
    if mask is not None:
        x._keras_mask = ops.convert_to_tensor(mask)
    return x


def merged(layer, inputs, masks):
    outputs = layer([masked(x, m) for x, m in zip(inputs, masks, strict=True)])
    return outputs.numpy(), getattr(outputs, "_keras_mask", None)


def expand_masks(inputs, masks):
    """Return the unmasked values per position."""
    ones = np.ones(A.shape[:2], bool)
    full_masks = [ones if m is None else m for m in masks]
    expanded = [np.broadcast_to(m[..., None], A.shape) for m in full_masks]
    return np.ma.masked_array(inputs, ~np.array(expanded))


MASKS = [
    *([None, None], [M, N], [M, None], [None, N]),
    *([M, N, K], [M, None, K], [None, N, K], [M, N, None], [None, None, K]),
]


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("name", ["Maximum", "Minimum", "Multiply"])
def test_masked_elements_are_ignored(name, masks):
    inputs = [A, B, C][: len(masks)]
    results, mask = merged(getattr(layers, name)(), inputs, masks)
    values = expand_masks(inputs, masks)
    reduced = {"Maximum": np.ma.max, "Minimum": np.ma.min, "Multiply": np.ma.prod}
    expected = reduced[name](values, axis=0)
    is_valid = ~np.ma.getmaskarray(expected)
    assert_close(results[is_valid], expected.data[is_valid])
    if name == "Multiply":
        assert not np.any(results[~is_valid])  # zeros, because all are masked
    if any(m is None for m in masks):
        assert mask is None and is_valid.all()
    else:
        assert np.array_equal(mask, np.any(masks, axis=0))
        assert not is_valid.all()


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("name", ["Add", "Average"])
def test_sums_include_masked_elements(name, masks):
    inputs = [A, B, C][: len(masks)]
    results, mask = merged(getattr(layers, name)(), inputs, masks)
    assert_close(results, np.sum(inputs, 0) / (len(inputs) if name == "Average" else 1))
    assert (mask is None) == any(m is None for m in masks)


@pytest.mark.parametrize("name", ["Add", "Subtract", "Multiply", "Maximum", "Minimum"])
def test_missing_axes_are_inserted_after_the_batch(name):
    small = RNG.normal(size=(2, 3)).astype("float32")
    numpy = {"Add": np.add, "Subtract": np.subtract, "Multiply": np.multiply}
    function = numpy.get(name) or getattr(np, name.lower())
    layer = getattr(layers, name)()
    assert_close(layer([A, small]), function(A, small[:, None]))
    assert_close(layer([small, A]), function(small[:, None], A))
    vector = RNG.normal(size=(2,)).astype("float32")
    assert_close(layer([vector, A]), function(vector[:, None, None], A))


def test_equal_ranks_are_not_reshaped():
    graph = trace_of(lambda a, b: layers.Add()([a, b]), (2, 3), (2, 3))
    assert op_names(graph) == ["add"]


def test_masks_may_select_single_elements():
    expanded = [np.repeat(m[..., None], 3, -1) for m in (M, N)]
    expected, _ = merged(layers.Maximum(), [A, B], [M, N])
    results, mask = merged(layers.Maximum(), [A, B], expanded)
    assert_close(results, expected)
    assert np.array_equal(mask, expanded[0] | expanded[1])


def test_subtract_needs_two_inputs():
    assert_close(layers.Subtract()([A, B]), A - B)
    for count in (1, 3):
        with pytest.raises(
            ArgumentError, match=f"expected 2 tensors; received {count}"
        ):
            layers.Subtract()([A] * count)


MERGES = ["Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract"]


@pytest.mark.parametrize("name", [*MERGES, "Dot"])
@pytest.mark.parametrize("inputs", [A, []])
def test_inputs_must_be_lists(name, inputs):
    layer = layers.Dot(1) if name == "Dot" else getattr(layers, name)()
    with pytest.raises(ArgumentError, match="expected a list of tensors; received"):
        layer(ops.convert_to_tensor(inputs) if inputs is A else inputs)


@pytest.mark.parametrize("name", [n for n in MERGES if n != "Concatenate"])
def test_inputs_need_one_batch_size(name):
    with pytest.raises(ShapeError, match=r"one batch size; .*\(2, 4, 3\), \(1, 4, 3\)"):
        getattr(layers, name)()([A, B[:1]])


def test_batch_of_one_is_broadcast_in_a_functional_model():
    ids = toolkit.Input((6,), dtype="int32")
    words = layers.Embedding(10, 4)(ids)
    embedded = layers.Embedding(6, 4)(ops.expand_dims(ops.arange(6), 0))
    merged = [layers.Add()([words, embedded]), layers.Maximum()([embedded, words])]
    model = toolkit.Model(ids, merged)
    x = np.arange(18).reshape(3, 6) % 10
    (table,), output = model.get_weights(), np.asarray(embedded)
    predictions = model.predict(x, verbose=0)
    np.testing.assert_allclose(predictions[0], table[x] + output, rtol=1e-6)
    np.testing.assert_allclose(predictions[1], np.maximum(table[x], output), rtol=1e-6)


@pytest.mark.parametrize("name", MERGES)
def test_compute_mask_needs_lists_of_equal_length(name):
    layer = getattr(layers, name)()
    with pytest.raises(ArgumentError, match="`mask` should be a list"):
        layer.compute_mask([A, B], M)
    with pytest.raises(ArgumentError, match="`inputs` should be a list"):
        layer.compute_mask(A, [M])
    with pytest.raises(ArgumentError, match="the same length; received 2 and 3"):
        layer.compute_mask([A, B], [M, N, K])
    assert layer.compute_mask([A, B], None) is None
    assert layer.compute_mask([A, B], (None, None)) is None


# --- Concatenate ----------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_tensors_are_concatenated_along_an_axis(axis):
    expected = np.concatenate([A, B], axis)
    assert_close(layers.Concatenate(axis=axis)([A, B]), expected)
    assert_close(layers.concatenate([A, B], axis=axis), expected)


@pytest.mark.parametrize("masks", [[M, N], [M, None], [None, N]])
def test_masks_are_concatenated_with_their_tensors(masks):
    full_masks = [np.ones((2, 4), bool) if m is None else m for m in masks]
    expanded = [np.repeat(m[..., None], 3, -1) for m in full_masks]
    for axis in (1, -1):
        _, mask = merged(layers.Concatenate(axis=axis), [A, B], masks)
        expected = np.concatenate(expanded, axis).any(-1)
        assert mask.dtype == "bool" and np.array_equal(mask, expected)
    passed_masks = [
        None if m is None else w for m, w in zip(masks, expanded, strict=True)
    ]
    tensors = [ops.convert_to_tensor(x) for x in (A, B)]
    actual = layers.Concatenate(axis=1).compute_mask(tensors, passed_masks)
    assert np.array_equal(actual, np.concatenate(expanded, 1).any(-1))


# --- Dot ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "axes, left, right, equation",
    [
        (1, (2, 4), (2, 4), "ac,ac->a"),
        (-1, (2, 4), (2, 4), "ac,ac->a"),
        (1, (2, 4, 3), (2, 4, 5), "acd,ace->ade"),
        ((1, 2), (2, 4, 3), (2, 5, 4), "acd,aec->ade"),
        ([2, 1], (2, 4, 3), (2, 3), "acd,ad->ac"),
        ((-1, -1), (2, 3), (2, 5, 3), "ac,aec->ae"),
        ((3, 1), (2, 3, 4, 5), (2, 5, 6), "abcd,ade->abce".replace("b", "x")),
    ],
)
@pytest.mark.parametrize("normalize", [False, True])
def test_dot_sums_over_an_axis_of_each_input(axes, left, right, equation, normalize):
    x, y = (RNG.normal(size=s).astype("float32") for s in (left, right))
    outputs = layers.Dot(axes, normalize=normalize)([x, y])
    pair = (axes, axes) if isinstance(axes, int) else axes
    if normalize:
        x, y = (
            v / np.linalg.norm(v, axis=a, keepdims=True)
            for v, a in zip((x, y), pair, strict=True)
        )
    expected = np.einsum(equation, x, y)
    expected = expected[:, None] if expected.ndim == 1 else expected
    assert_close(outputs, expected, factor=10)
    if not normalize:
        assert_close(layers.dot([x, y], axes), expected, factor=10)


def test_normalized_zero_vector_is_zero():
    zeros = np.zeros((2, 3), "float32")
    assert_close(layers.Dot(1, normalize=True)([zeros, zeros]), np.zeros((2, 1)))
    tiny = np.full((1, 1), 1e-5, "float32")
    assert_close(layers.Dot(1, normalize=True)([tiny, tiny]), np.ones((1, 1)))


@pytest.mark.parametrize("axes", [(1,), (1, 2, 3), (1, 2.0), ("a", 1)])
def test_dot_takes_one_or_two_axes(axes):
    with pytest.raises(ArgumentError, match="an integer or two of them; received"):
        layers.Dot(axes)


@pytest.mark.parametrize("axes", [0, (0, 1), (1, 0), (1, 2), (-3, 1)])
def test_dot_needs_equal_extents_except_the_batch(axes):
    with pytest.raises(ShapeError, match="equal extents along the axes"):
        layers.Dot(axes)([A, B])


def test_unknown_extents_are_accepted():
    x, y = toolkit.Input((None, 3)), toolkit.Input((4, 5))
    assert layers.Dot(1)([x, y]).shape == (None, 3, 5)
    with pytest.raises(ShapeError, match="equal extents"):
        layers.Dot((2, 1))([x, y])
    for count in (1, 3):
        with pytest.raises(
            ArgumentError, match=f"expected 2 tensors; received {count}"
        ):
            layers.Dot(1)([A] * count)


def test_dot_product_has_no_mask():
    assert merged(layers.Dot(2), [A, B], [M, N])[1] is None


# --- functions ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function, expected",
    [
        (layers.add, A + B),
        (layers.subtract, A - B),
        (layers.multiply, A * B),
        (layers.average, (A + B) / 2),
        (layers.maximum, np.maximum(A, B)),
        (layers.minimum, np.minimum(A, B)),
        (layers.concatenate, np.concatenate([A, B], -1)),
    ],
)
def test_functions_equal_their_layers(function, expected):
    assert_close(function([A, B], name="mine"), expected)
    assert_close(function((A, B)), expected)
