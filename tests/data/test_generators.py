"""Tests that batches of a generator equal batches of its single elements."""

from collections import OrderedDict, namedtuple

import ml_dtypes
import numpy as np
import pytest

from toolkit.data import Dataset, TensorSpec
from toolkit.data.structure import leaves, stack_elements

INT, FLOAT = TensorSpec((), "int64"), TensorSpec((), "float32")
IMAGE = TensorSpec((2, 3), "uint8")
Pair = namedtuple("Pair", "x y")


def image(i):
    return np.full((2, 3), i, np.uint8)


# The value of element i, and the signature.
FITTING = {
    "numbers": (lambda i: i, INT),
    "numbers of another dtype": (lambda i: i + 0.75, TensorSpec((), "int32")),
    "numbers of NumPy": (lambda i: np.float64(i) / 3, FLOAT),
    "several kinds of numbers": (lambda i: (i, i / 3, True, np.int8(i))[i % 4], FLOAT),
    "bfloat16": (lambda i: i / 3, TensorSpec((), "bfloat16")),
    "complex": (lambda i: i * 1j, TensorSpec((), "complex64")),
    "booleans": (lambda i: i % 2, TensorSpec((), "bool")),
    "records": (lambda i: (i, i / 2), TensorSpec((), [("a", "i4"), ("b", "f4")])),
    "records of one number": (lambda i: i, TensorSpec((), [("a", "i4"), ("b", "f4")])),
    "dates": (lambda i: f"2001-01-0{i + 1}", TensorSpec((), "datetime64[D]")),
    "strings": (lambda i: "a" * i, TensorSpec((), str)),
    "bytes": (lambda i: b"a\0" * i, TensorSpec((), bytes)),
    "arrays": (image, IMAGE),
    "arrays of another dtype": (image, TensorSpec((2, None), "float16")),
    "arrays in another order": (lambda i: image(i).T, TensorSpec(None, "uint8")),
    "arrays without extent": (lambda i: np.array(i), INT),
    "empty arrays": (lambda i: np.zeros((0, 3)), TensorSpec((None, 3), "float32")),
    "lists": (lambda i: [i, [i + 1, i][0]], TensorSpec((2,), "int16")),
    "several kinds of rows": (
        lambda i: ([i, i], (i, i), np.array([i, i]))[i % 3],
        TensorSpec((None,), "float32"),
    ),
    "lists of strings": (lambda i: ["a", "b" * i], TensorSpec((2,), str)),
    "pairs": (lambda i: (image(i), i), (IMAGE, INT)),
    "lists as pairs": (
        lambda i: [image(i), i] if i % 2 else (image(i), i),
        (IMAGE, INT),
    ),
    "named pairs": (lambda i: Pair(image(i), i), (IMAGE, INT)),
    "dicts": (lambda i: {"a": i, "b": image(i)}, {"b": IMAGE, "a": FLOAT}),
    "other dicts": (lambda i: OrderedDict(a=i), {"a": FLOAT}),
    "dicts of numbers": (lambda i: {"a": i, "b": i / 2}, {"b": FLOAT, "a": INT}),
    "dicts of NumPy's numbers": (
        lambda i: {"a": np.int8(i), "b": np.array(i / 2), "c": i},
        {"a": INT, "b": FLOAT, "c": FLOAT},
    ),
    "other dicts of numbers": (
        lambda i: OrderedDict(a=i, b=i) if i % 2 else {"b": i, "a": i},
        {"a": FLOAT, "b": INT},
    ),
    "pairs of numbers": (lambda i: [i, i / 2] if i == 3 else (i, i / 2), (INT, FLOAT)),
    "nests": (
        lambda i: {"a": (i, [i]), "b": {"c": i}},
        {
            "a": (INT, TensorSpec((1,), "float32")),
            "b": {"c": FLOAT},
        },
    ),
    "as they come": (lambda i: (image(i), {"a": i}), None),
    "named as they come": (lambda i: Pair(i, "a" * i), None),
    "dtypes as they come": (lambda i: np.arange(2, dtype=("i4", "f4")[i % 2]), None),
}


def assert_same(actual, expected):
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert [*actual] == [*expected]
    for first, second in zip(leaves(actual), leaves(expected), strict=True):
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", FITTING)
def test_batches_match_single_elements(name):
    make, signature = FITTING[name]
    dataset = Dataset.from_generator(
        lambda: map(make, range(8)), output_signature=signature
    )
    ones = list(dataset)
    for drop_remainder in (False, True):
        batches = list(dataset.batch(3, drop_remainder=drop_remainder))
        expected = [stack_elements(ones[at : at + 3]) for at in (0, 3, 6)]
        assert len(batches) == 3 - drop_remainder
        for batch, expected_batch in zip(batches, expected, strict=False):
            assert_same(batch, expected_batch)


def failing(at):
    def make(i):
        if i == at:
            raise KeyError("lost")
        return i

    return make


# The value of element i, the signature, and the number of the first wrong element.
MISFITS = {
    "not a number": (lambda i: "x" if i >= 4 else i, INT, 4),
    "too large": (lambda i: 1 << (20 * i), INT, 4),
    "out of range": (lambda i: 100 * i, TensorSpec((), "uint8"), 3),
    "an array for a number": (lambda i: [i] if i == 6 else i, INT, 6),
    "arrays for numbers": (lambda i: [i], INT, 0),
    "another shape": (lambda i: np.zeros((2, 3 + (i == 5)), "uint8"), IMAGE, 5),
    "as many in another shape": (lambda i: np.zeros((3, 2), "uint8"), IMAGE, 0),
    "another length": (lambda i: (i, i, i)[: 2 + (i == 4)], (INT, INT), 4),
    "no tuple": (lambda i: i if i == 5 else (i, i), (INT, INT), 5),
    "an array for a tuple": (lambda i: np.zeros(2), (INT, INT), 0),
    "no dict": (lambda i: (i,) if i == 5 else {"a": i}, {"a": INT}, 5),
    "another key": (lambda i: {"ab"[i == 5]: i}, {"a": INT}, 5),
    "one key more": (lambda i: {"a": i, "b": i} if i == 2 else {"a": i}, {"a": INT}, 2),
    "another key of two": (
        lambda i: {"a": i, "bc"[i == 5]: i},
        {"a": INT, "b": FLOAT},
        5,
    ),
    "one key more than two": (
        lambda i: {"a": i, "b": i, **({"c": i} if i == 3 else {})},
        {"a": INT, "b": FLOAT},
        3,
    ),
    "a number of two": (
        lambda i: {"a": i, "b": "x" if i == 4 else i},
        {"a": INT, "b": FLOAT},
        4,
    ),
    "the first of two": (
        lambda i: (i, "x") if i == 4 else ("x", i) if i == 5 else (i, i),
        (INT, INT),
        4,
    ),
    "in what is left out": (lambda i: None if i == 7 else i, INT, 7),
    "an error": (failing(5), INT, 5),
    "an error as they come": (failing(5), None, 5),
    "an error at once": (failing(0), INT, 0),
    "before an error": (lambda i: "x" if i == 4 else failing(5)(i), INT, 4),
}


def elements_or_error(dataset):
    """Return the elements before an error, and the error."""
    elements = []
    try:
        elements.extend(dataset)
    except Exception as error:
        return elements, error
    raise AssertionError(f"no error; {elements}")


@pytest.mark.parametrize("name", MISFITS)
def test_errors_name_the_element_in_batches_too(name):
    make, signature, number = MISFITS[name]
    dataset = Dataset.from_generator(
        lambda: map(make, range(8)), output_signature=signature
    )
    ones, expected = elements_or_error(dataset)
    notes = [f"data set: stage from_generator, element {number}"]
    assert (len(ones), expected.__notes__) == (number, notes)
    for stage in (
        dataset.batch(3, drop_remainder=True),
        dataset.batch(3, num_parallel_calls=2),
        dataset.ragged_batch(3),
        dataset.batch(3).prefetch(2),
    ):
        batches, error = elements_or_error(stage)
        assert (type(error), str(error)) == (type(expected), str(expected))
        assert error.__notes__ == notes
        assert type(error.__cause__) is type(expected.__cause__)
        assert error.__suppress_context__ or error.__context__ is None
        assert len(batches) == number // 3


def test_valid_elements_that_do_not_stack():
    rows = TensorSpec((None,), "float32")
    dataset = Dataset.from_generator(
        lambda: ([0.0] * i for i in range(4)), output_signature=rows
    )
    with pytest.raises(ValueError, match="padded_batch") as error:
        list(dataset.batch(3))
    assert error.value.__notes__ == ["data set: stage batch, after 0 elements"]
    assert [x.shape for x in dataset.padded_batch(3)] == [(3, 2), (1, 3)]


@pytest.mark.parametrize(
    "elements", [[(1, 2), (1,)], [(1, 2), 1], [{"a": 1}, {"b": 1}], [{"a": 1}, 1]]
)
def test_elements_of_several_structures(elements):
    dataset = Dataset.from_generator(lambda: elements)
    assert list(dataset) == elements
    with pytest.raises(ValueError, match="one structure"):
        list(dataset.batch(2))


def test_non_iterables_are_refused():
    for stage in (lambda d: d, lambda d: d.batch(2)):
        with pytest.raises(TypeError, match="iterable") as error:
            list(stage(Dataset.from_generator(lambda: 3, output_signature=INT)))
        assert error.value.__notes__ == ["data set: stage from_generator, element 0"]


def test_batch_reads_only_its_elements():
    produced = []

    def elements():
        for i in range(8):
            produced.append(i)
            yield i
        produced.append("end")

    batches = iter(Dataset.from_generator(elements, output_signature=INT).batch(3))
    assert produced == []
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    assert produced == [0, 1, 2, 3, 4, 5]
    assert [x.tolist() for x in batches] == [[6, 7]]
    assert produced.count("end") == 1


ROW = TensorSpec((2,), "float32")

# An object, the update that makes it element i, and the signature.
FILLED_AGAIN = {
    "a list": ([0, 0], lambda x, i: x.__setitem__(slice(None), [i, i]), ROW),
    "a list as a tuple": ([0, 0], lambda x, i: x.__setitem__(0, i), (INT, FLOAT)),
    "a dict": ({"a": 0}, lambda x, i: x.update(a=i), {"a": INT}),
    "an array of another dtype": (np.zeros(2), np.ndarray.fill, ROW),
    "an array without extent": (np.array(0), np.ndarray.fill, INT),
    "a dict of two": (
        {"a": 0, "b": 0},
        lambda x, i: x.update(a=i),
        {"a": INT, "b": INT},
    ),
    "an array without extent beside a number": (
        {"a": np.array(0), "b": 0},
        lambda x, i: x["a"].fill(i),
        {"a": INT, "b": INT},
    ),
    "an array in a dict": (
        {"a": np.zeros(2)},
        lambda x, i: x["a"].fill(i),
        {"a": ROW},
    ),
}


@pytest.mark.parametrize("name", FILLED_AGAIN)
def test_element_is_converted_before_the_next(name):
    value, fill, signature = FILLED_AGAIN[name]

    def elements():
        for i in range(1, 5):
            fill(value, i)
            yield value

    dataset = Dataset.from_generator(elements, output_signature=signature)
    for stage in (dataset.batch(2), dataset.padded_batch(2), dataset.shuffle(1)):
        values = [np.ravel(leaves(x)[0]) for x in stage]
        assert np.unique(np.concatenate(values)).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("signature", [IMAGE, None])
def test_stages_process_an_element_before_the_next(signature):
    array = np.zeros((2, 3), np.uint8)
    dataset = Dataset.from_generator(
        lambda: (array.fill(i) or array for i in range(8)), output_signature=signature
    )
    for stage in (dataset.map(np.copy).batch(3), dataset.map(np.copy)):
        values = np.concatenate([x.reshape(-1, 2, 3) for x in stage])
        assert values[:, 0, 0].tolist() == [*range(8)]


@pytest.mark.parametrize("signature", [INT, None])
def test_a_position_between_batches(signature):
    dataset = Dataset.from_generator(lambda: range(8), output_signature=signature)
    for stage in (dataset.batch(3), dataset.batch(3).prefetch(2)):
        iterator = iter(stage)
        first_batch = next(iterator).tolist()
        state = iterator.get_state()
        remaining = [x.tolist() for x in iterator]
        iterator.set_state(state)
        assert [x.tolist() for x in iterator] == remaining == [[3, 4, 5], [6, 7]]
        assert first_batch == [0, 1, 2]


def test_a_generator_is_closed_with_its_pass():
    ends = []

    def elements():
        try:
            yield from range(8)
        finally:
            ends.append(1)

    iterator = iter(Dataset.from_generator(elements, output_signature=INT).batch(3))
    next(iterator)
    iterator.close()
    del iterator
    assert ends == [1]


def test_statistics_count_elements():
    dataset = Dataset.from_generator(lambda: range(8), output_signature=INT).batch(3)
    list(dataset)
    rows = dataset.stats().rows
    assert [row["elements"] for row in rows] == [8, 3]


def test_numbers_match_numpy():
    for dtype in ("int8", "uint16", "float16", "float32", "bfloat16", "bool", "int64"):
        spec = TensorSpec((), dtype)
        values = [0, 1, True, 2.5, 100]
        dataset = Dataset.from_generator(lambda v=values: v, output_signature=spec)
        elements = list(dataset)
        expected = list(np.array(values, spec.dtype))
        assert elements == expected
        assert [type(x) for x in elements] == [type(x) for x in expected]
    assert type(elements[0]) is np.int64
    arrays = Dataset.from_generator(lambda: [np.array(3)], output_signature=INT)
    assert [type(x) for x in arrays] == [np.int64]
    assert TensorSpec((), "bfloat16").dtype == ml_dtypes.bfloat16
