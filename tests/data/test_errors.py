"""Tests that errors in data sets name stage, element and file, and keep their type."""

import pytest

from toolkit.data import AUTOTUNE, Dataset, Options, TensorSpec, TextLineDataset


class UnusualError(Exception):
    pass


def failing_at(number):
    def check(x):
        if x == number:
            raise UnusualError("boom")
        return x

    return check


@pytest.mark.parametrize(
    "arguments", [{}, {"num_parallel_calls": 3}, {"num_parallel_calls": AUTOTUNE}]
)
def test_map_names_stage_element_and_function(arguments):
    dataset = Dataset.range(20_000).map(failing_at(12_345), **arguments)
    count = 0
    with pytest.raises(UnusualError, match="boom") as error:
        for _ in dataset:
            count += 1
    assert count == 12_345
    (note,) = error.value.__notes__
    assert "map" in note
    assert "element 12,345" in note


def test_map_after_files_names_the_file(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("1\n2\nthree\n")
    dataset = TextLineDataset(path).map(int, num_parallel_calls=2)
    with pytest.raises(ValueError, match="three") as error:
        list(dataset)
    assert "numbers.txt, record 2" in error.value.__notes__[0]


def test_map_after_a_cache_names_the_file_of_the_element(tmp_path):
    path = tmp_path / "numbers"
    Dataset.range(5).save(path)
    dataset = Dataset.load(path).cache().map(failing_at(3))
    with pytest.raises(UnusualError) as error:
        list(dataset)
    assert "element 3, from " in error.value.__notes__[0]
    assert "numbers" in error.value.__notes__[0]


def test_function_in_a_batch_names_its_element():
    dataset = Dataset.range(100).map(failing_at(57)).batch(10)
    with pytest.raises(UnusualError) as error:
        list(dataset)
    assert "element 57" in error.value.__notes__[0]


def test_error_keeps_its_cause():
    def fail(x):
        raise UnusualError("outer") from KeyError("inner")

    with pytest.raises(UnusualError) as error:
        list(Dataset.range(3).map(fail))
    assert isinstance(error.value.__cause__, KeyError)


def test_ignored_errors_are_logged():
    for arguments in ({}, {"num_parallel_calls": 3}):
        log = []
        dataset = Dataset.range(6).map(lambda x: 6 // (int(x) - 2), **arguments)
        remaining = list(dataset.ignore_errors(log=log.append))
        assert remaining == [-3, -6, 6, 3, 2]
        assert len(log) == 1
        assert "ZeroDivisionError" in log[0]
    with pytest.warns(UserWarning, match="ignore_errors"):
        list(Dataset.range(3).map(failing_at(1)).ignore_errors())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Dataset.range(3).batch(0), "batch_size >= 1"),
        (lambda: Dataset.range(3).shuffle(0), "buffer_size >= 1"),
        (lambda: Dataset.range(3).shard(2, 2), "0 <= index < num_shards"),
        (lambda: Dataset.range(3).window(0), "size >= 1"),
        (lambda: Dataset.range(3).prefetch(-2), "buffer_size >= 0"),
        (lambda: Dataset.range(3).map(abs, num_parallel_calls=0), "num_parallel_calls"),
        (lambda: Dataset.range(3).map(abs, workers="fork"), "workers"),
        (lambda: Dataset.range(3).interleave(abs, cycle_length=0), "cycle_length"),
        (lambda: Dataset.from_tensor_slices(3), "arrays with rows"),
        (lambda: Dataset.from_tensor_slices(([1], [1, 2])), r"\[1, 2\]"),
        (lambda: Dataset.zip(), "data sets"),
        (lambda: Dataset.range(2).concatenate([1]), "data sets"),
        (lambda: Dataset.sample_from_datasets([Dataset.range(2)], [1, 2]), "1 weights"),
        (lambda: Options(threads=0), "an integer >= 1"),
        (lambda: list(Dataset.range(3).flat_map(int)), "returns a Dataset"),
        (lambda: Dataset.range(3).apply(list), "returns a Dataset"),
        (lambda: len(Dataset.range(3).repeat()), "infinite"),
        (lambda: len(Dataset.range(3).filter(bool)), "unknown"),
        (lambda: Dataset.from_generator([1, 2]), "function"),
        (lambda: Dataset.list_files("nothing/*.here"), "no file matches"),
    ],
)
def test_bad_arguments_are_refused(make, words):
    with pytest.raises(Exception, match=words) as error:
        make()
    assert isinstance(error.value, (ValueError, TypeError, RuntimeError))


def test_elements_must_match_the_signature():
    signature = TensorSpec((2,), "float32")
    for element, words in (([1.0], r"\(1,\)"), (["x", "y"], "float32")):
        dataset = Dataset.from_generator(
            lambda e=element: [e], output_signature=signature
        )
        with pytest.raises(ValueError, match=words):
            list(dataset)


def test_unstackable_shapes_are_refused():
    rows = Dataset.range(1, 4).map(lambda n: [0.0] * int(n))
    with pytest.raises(ValueError, match="padded_batch"):
        list(rows.batch(3))
