"""Tests of tf.data's names, arguments and options, or of a clear refusal."""

import inspect
import typing

import numpy as np
import pytest

from toolkit.data import (
    AUTOTUNE,
    AutotuneOptions,
    Dataset,
    Options,
    Ragged,
    TensorSpec,
    ThreadingOptions,
)
from toolkit.data.computed import compute_batches
from toolkit.data.tuning import Knob
from toolkit.errors import ArgumentError, DTypeError

ARGUMENTS = {  # as in TensorFlow 2.21, without `self` and `name`
    "apply": "transformation_func",
    "batch": "batch_size drop_remainder num_parallel_calls deterministic",
    "bucket_by_sequence_length": "element_length_func bucket_boundaries "
    "bucket_batch_sizes padded_shapes padding_values pad_to_bucket_boundary "
    "no_padding drop_remainder",
    "cache": "filename",
    "choose_from_datasets": "datasets choice_dataset stop_on_empty_dataset",
    "concatenate": "dataset",
    "counter": "start step dtype",
    "enumerate": "start",
    "filter": "predicate",
    "flat_map": "map_func",
    "from_generator": "generator output_types output_shapes args output_signature",
    "from_tensor_slices": "tensors",
    "from_tensors": "tensors",
    "get_single_element": "",
    "group_by_window": "key_func reduce_func window_size window_size_func",
    "ignore_errors": "log_warning",
    "interleave": "map_func cycle_length block_length num_parallel_calls deterministic",
    "list_files": "file_pattern shuffle seed",
    "load": "path element_spec compression reader_func wait",
    "map": "map_func num_parallel_calls deterministic synchronous "
    "use_unbounded_threadpool",
    "padded_batch": "batch_size padded_shapes padding_values drop_remainder",
    "prefetch": "buffer_size",
    "ragged_batch": "batch_size drop_remainder row_splits_dtype",
    "random": "seed rerandomize_each_iteration",
    "rebatch": "batch_size drop_remainder",
    "reduce": "initial_state reduce_func",
    "rejection_resample": "class_func target_dist initial_dist seed",
    "repeat": "count",
    "sample_from_datasets": "datasets weights seed stop_on_empty_dataset "
    "rerandomize_each_iteration",
    "save": "path compression shard_func checkpoint_args",
    "scan": "initial_state scan_func",
    "shard": "num_shards index",
    "shuffle": "buffer_size seed reshuffle_each_iteration",
    "skip": "count",
    "snapshot": "path compression reader_func shard_func",
    "take": "count",
    "take_while": "predicate",
    "unbatch": "",
    "unique": "",
    "window": "size shift stride drop_remainder",
    "with_options": "options",
    "zip": "args datasets",
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_method_has_the_arguments_of_tensorflow(name):
    parameters = list(inspect.signature(getattr(Dataset, name)).parameters)
    if not isinstance(inspect.getattr_static(Dataset, name), staticmethod):
        parameters = parameters[1:]
    expected = ARGUMENTS[name].split()
    assert parameters[: len(expected)] == expected


def test_names_of_stages_are_shown():
    def fail(x):
        raise ValueError("no")

    dataset = Dataset.range(3, name="numbers").map(fail, name="decode")
    assert repr(dataset) == "<Dataset range 'numbers' > map 'decode'>"
    assert dataset.get_state()["pipeline"] == repr(dataset)
    for stage in (dataset.filter(bool), dataset.prefetch(1)):
        with pytest.raises(ValueError, match="no") as error:
            list(stage)
        assert "decode" in error.value.__notes__[0]
    named = Dataset.range(3).map(abs, name="decode").filter(bool, name="some")
    list(named)
    assert "filter 'some'" in str(named.stats())
    with pytest.raises(ZeroDivisionError) as error:
        Dataset.range(3).reduce(0, lambda a, b: 1 // 0, name="sum")
    assert "reduce 'sum', element 0" in error.value.__notes__[0]


IMAGES = np.zeros((6, 4, 4), "float32")
REPRESENTATIONS = {
    "from_tensor_slices > shuffle > batch: (float32[None, 4, 4], int64[None])": (
        lambda: Dataset.from_tensor_slices((IMAGES, np.arange(6))).shuffle(6).batch(4)
    ),
    "from_tensor_slices > batch > prefetch: {'x': string[None]}": lambda: (
        Dataset.from_tensor_slices({"x": ["a", "b"]}).batch(2).prefetch(1)
    ),
    "from_tensors: (float32[6, 4, 4],)": lambda: Dataset.from_tensors((IMAGES,)),
    "from_generator": lambda: Dataset.from_generator(lambda: 1 // 0),
    "from_generator: float32[None]": lambda: Dataset.from_generator(
        lambda: 1 // 0, output_signature=TensorSpec((None,), "float32")
    ),
    "range > map > batch": lambda: Dataset.range(3).map(lambda x: 1 // 0).batch(2),
    "range > filter: int64[]": lambda: Dataset.range(3).filter(lambda x: 1 // 0),
    "range > interleave": lambda: Dataset.range(3).interleave(lambda x: 1 // 0),
    "computed > batch: (float32[None, 2], int64[None])": lambda: compute_batches(
        5, lambda n: (np.ones((len(n), 2), "float32"), n), 2, False, None
    ),
}


@pytest.mark.parametrize("text", REPRESENTATIONS)
def test_representation_shows_specs_without_calls_of_functions(text):
    assert repr(REPRESENTATIONS[text]()) == f"<Dataset {text}>"


def test_representation_shows_a_spec_that_was_inferred():
    dataset = Dataset.range(3).map(lambda x: np.full(2, x, "float32")).batch(2)
    fingerprint, state = dataset.fingerprint(), dataset.get_state()
    assert repr(dataset) == "<Dataset range > map > batch>"
    assert dataset.element_spec.shape == (None, 2)
    assert repr(dataset) == "<Dataset range > map > batch: float32[None, 2]>"
    assert "float32[None, 2]" in dataset._repr_html_()
    assert (dataset.fingerprint(), dataset.get_state()) == (fingerprint, state)


@pytest.mark.parametrize("calls", [1, 3, AUTOTUNE])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_parallel_batches_match(calls, drop_remainder):
    for make in (
        lambda: Dataset.range(23).map(lambda x: (x, {"y": x + 1})),
        lambda: Dataset.range(23).filter(lambda x: x != 5),
        lambda: Dataset.range(23).shuffle(7, seed=1),
    ):
        sequential, parallel = (
            list(make().batch(4, drop_remainder, num_parallel_calls=n))
            for n in (None, calls)
        )
        assert str(sequential) == str(parallel)
        unordered = make().batch(4, drop_remainder, calls, deterministic=False)
        assert sorted(map(str, unordered)) == sorted(map(str, sequential))
        iterator = iter(make().batch(4, drop_remainder, calls))
        batches = [next(iterator) for _ in range(2)]
        resumed = iter(make().batch(4, drop_remainder, calls))
        resumed.set_state(iterator.get_state())
        assert str(batches + list(resumed)) == str(sequential)


def test_error_in_a_parallel_batch_names_its_element():
    dataset = Dataset.range(30).map(lambda x: 1 // int(x - 17))
    with pytest.raises(ZeroDivisionError) as error:
        list(dataset.batch(4, num_parallel_calls=2))
    assert "map, element 17" in error.value.__notes__[0]
    unequal_lengths = Dataset.range(30).filter(bool).map(lambda x: np.zeros(x))
    with pytest.raises(ValueError, match="padded_batch") as error:
        list(unequal_lengths.batch(4, num_parallel_calls=2))
    assert "batch, element 0" in error.value.__notes__[0]


# --- options --------------------------------------------------------------------------


def test_options_are_set_as_in_tensorflow():
    options = Options()
    options.deterministic = False
    options.threading.private_threadpool_size = 3
    options.autotune.enabled = False
    options.autotune.cpu_budget = 2
    options.autotune.ram_budget = 1 << 20
    same = Options(False, 3, 2, 1 << 20, False)
    assert options == same
    dataset = Dataset.range(3).with_options(options)
    options.deterministic = True  # later: the data set has a private copy
    assert dataset.options() == same
    assert (same.threads, same.cpu_budget, same.ram_budget) == (3, 2, 1 << 20)
    merged_options = Options(threads=5).merge(Options(deterministic=False))
    assert (merged_options.threads, merged_options.deterministic) == (5, False)
    changed = dataset.with_options(Options(threads=7)).options()
    assert (changed.threads, changed.deterministic) == (7, False)
    tensorflow_options = Options(
        autotune=AutotuneOptions(False), threading=ThreadingOptions(2)
    )
    assert (tensorflow_options.autotune.enabled, tensorflow_options.threads) == (
        False,
        2,
    )
    tensorflow_options.experimental_deterministic = True
    tensorflow_options.experimental_threading.private_threadpool_size = 4
    assert (tensorflow_options.deterministic, tensorflow_options.threads) == (True, 4)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (
            lambda o: setattr(o, "experimental_slack", True),
            NotImplementedError,
            "AUTOTUNE",
        ),
        (lambda o: o.experimental_distribute, NotImplementedError, "Dataset.shard"),
        (lambda o: o.experimental_optimization, NotImplementedError, "fused"),
        (
            lambda o: setattr(o.threading, "max_intra_op_parallelism", 1),
            NotImplementedError,
            "max_intra_op_parallelism is not supported",
        ),
        (
            lambda o: setattr(o, "thread", 1),
            AttributeError,
            "expected one of.*'thread'",
        ),
        (
            lambda o: setattr(o.autotune, "cpu_budget", 0),
            ValueError,
            "cpu_budget to be an integer >= 1 or None; received 0",
        ),
        (lambda o: setattr(o, "threads", 0), ValueError, "an integer >= 1"),
        (lambda o: setattr(o, "threads", "3"), ValueError, "an integer >= 1"),
        (lambda o: setattr(o, "deterministic", "no"), ValueError, "True, False or"),
        (lambda o: setattr(o, "autotune", "off"), ValueError, "True, False or None"),
        (lambda o: setattr(o, "threading", 2), ValueError, "ThreadingOptions"),
    ],
)
def test_unknown_options_are_refused(change, kind, words):
    with pytest.raises(kind, match=words):
        change(Options())


def test_options_limit_the_threads():
    options = Options(threads=3)
    assert Knob.of(8, options).value == 3
    assert Knob.of(8, options, is_unbounded=True).value == 8
    assert Knob.of(AUTOTUNE, options).value == 3
    options.threading = ThreadingOptions(40)
    options.autotune.initial_parallelism = 5
    options.autotune.min_parallelism = 2
    parameter = Knob.of(AUTOTUNE, options)
    assert (parameter.value, parameter.low, parameter.high) == (5, 2, 40)
    with pytest.raises(ValueError, match="synchronous=True"):
        Dataset.range(3).map(abs, num_parallel_calls=2, synchronous=True)


# --- further methods ------------------------------------------------------------------


def test_counter_and_its_position():
    dataset = Dataset.counter(10, -3, "int32")
    iterator = iter(dataset)
    assert [int(iterator.get_next()) for _ in range(3)] == [10, 7, 4]
    resumed = iter(Dataset.counter(10, -3, "int32"))
    resumed.set_state(iterator.get_state())
    assert next(resumed) == 1 and next(resumed).dtype == "int32"
    assert dataset.cardinality() == -1
    assert dataset.element_spec == TensorSpec((), "int32")


def test_single_element():
    assert Dataset.range(1).get_single_element() == 0
    for count, words in ((0, "no elements"), (2, "more")):
        with pytest.raises(RuntimeError, match=f"one element.*{words}"):
            Dataset.range(count).get_single_element()


@pytest.mark.parametrize("is_known", [True, False])
def test_resampled_distribution(is_known):
    def make():
        kinds = Dataset.range(20_000).map(lambda x: x % 10)
        initial = [0.1, 0.9] if is_known else None
        return kinds.rejection_resample(lambda x: int(x > 0), [0.5, 0.5], initial, 3)

    dataset = make()
    kinds = [int(kind) for kind, _ in dataset]
    assert 0.45 < np.mean(kinds) < 0.55
    assert len(kinds) > 3_600
    assert all(kind == (x > 0) for kind, x in dataset)
    iterator = iter(make())
    elements = [int(next(iterator)[1]) for _ in range(900)]
    resumed = iter(make())
    resumed.set_state(iterator.get_state())
    remaining = [int(x) for _, x in resumed]
    assert elements + remaining == [int(x) for _, x in make()]
    with pytest.raises(ValueError, match="from 0 to 1; received 2") as error:
        list(Dataset.range(3).rejection_resample(int, [0.5, 0.5], seed=1))
    assert "element 2" in error.value.__notes__[0]


def test_dtype_of_row_splits():
    rows = Dataset.range(1, 4).map(np.ones)
    for dtype in ("int32", "int64"):
        batch = rows.ragged_batch(3, row_splits_dtype=dtype).get_single_element()
        assert isinstance(batch, Ragged) and batch.row_splits.dtype == dtype
    with pytest.raises(ValueError, match="row_splits_dtype"):
        rows.ragged_batch(3, row_splits_dtype="int8")


def test_samples_repeat_in_each_pass_by_default():
    datasets = [Dataset.range(50), Dataset.range(100, 150)]
    for rerandomize, is_same in ((None, True), (False, True), (True, False)):
        dataset = Dataset.sample_from_datasets(
            datasets, seed=1, rerandomize_each_iteration=rerandomize
        )
        assert ([*map(int, dataset)] == [*map(int, dataset)]) == is_same


# --- values of all kinds --------------------------------------------------------------


class Pair(typing.NamedTuple):
    x: typing.Any
    y: typing.Any


def test_padded_batches_of_scalars_and_nests():
    rows = Dataset.range(1, 4).map(lambda n: Pair(np.full(n, n), {"label": n}))
    batch = rows.padded_batch(3).get_single_element()
    assert type(batch) is Pair
    assert batch.x.tolist() == [[1, 0, 0], [2, 2, 0], [3, 3, 3]]
    assert batch.y["label"].tolist() == [1, 2, 3]
    shapes = Pair([4], {"label": []})
    padded = rows.padded_batch(3, shapes, padding_values=-1).get_single_element()
    assert padded.x.shape == (3, 4) and padded.x[0, 1] == -1
    words = Dataset.from_tensor_slices(["a", "bb"]).padded_batch(2)
    assert words.get_single_element().tolist() == ["a", "bb"]
    with pytest.raises(ValueError, match=r"rank 0 .*received \(3,\)"):
        list(Dataset.range(3).padded_batch(2, padded_shapes=[3]))


@pytest.mark.parametrize(
    "arguments",
    [
        {"padded_shapes": [None]},
        {"padded_shapes": ([None],)},
        {"padded_shapes": ([None], [], [])},
        {"padded_shapes": ([None], {"c": []})},
        {"padded_shapes": ([None], {"label": [], "c": []})},
        {"padding_values": (7,)},
        {"padding_values": (7, {"c": 7})},
    ],
)
def test_padding_must_have_the_structure_of_elements(arguments):
    rows = Dataset.range(1, 4).map(lambda n: (np.full(n, n), {"label": n}))
    with pytest.raises(ArgumentError, match="padded_batch: padd.* like the elements"):
        list(rows.padded_batch(2, **arguments))


@pytest.mark.parametrize("value", [1.5, "x", [1, 2], -1])
def test_invalid_padding_is_refused(value):
    rows = Dataset.range(1, 4).map(lambda n: np.full(n, n, "uint8"))
    with pytest.raises(ArgumentError, match="padding_values with the dtype uint8"):
        list(rows.padded_batch(2, padding_values=value))


def test_padding_with_long_text():
    rows = Dataset.range(1, 3).map(lambda n: np.full(n, "a"))
    padded = next(iter(rows.padded_batch(2, padding_values="<none>")))
    assert padded.tolist() == [["a", "<none>"], ["a", "a"]]


def test_zip_keeps_structures():
    a, b = Dataset.range(2), Dataset.range(5, 7)
    assert list(Dataset.zip((a, {"b": b}))) == [(0, {"b": 5}), (1, {"b": 6})]
    assert list(Dataset.zip(((a,), b))) == [((0,), 5), ((1,), 6)]
    assert Dataset.zip((a, {"b": b})).element_spec == (
        TensorSpec((), "int64"),
        {"b": TensorSpec((), "int64")},
    )


def test_named_tuples_are_one_argument():
    pairs = Dataset.from_tensor_slices(Pair(np.arange(3), np.arange(3, 6)))
    assert list(pairs.map(lambda p: p.x + p.y)) == [3, 5, 7]
    assert [p.x for p in pairs.filter(lambda p: p.y > 3)] == [1, 2]


@pytest.mark.parametrize("stage", ["filter", "take_while"])
def test_predicates_must_return_a_boolean(stage):
    dataset = getattr(Dataset.range(3), stage)(lambda x: None)
    with pytest.raises(TypeError, match="expected a boolean; received None"):
        list(dataset)


def test_text_is_no_number():
    numbers = Dataset.from_generator(
        lambda: iter([5]), output_signature=TensorSpec((), "string")
    )
    with pytest.raises(DTypeError, match="dtype object; received 5"):
        list(numbers)
    text = Dataset.from_generator(
        lambda: iter(["5"]), output_signature=TensorSpec((), "int32")
    )
    with pytest.raises(DTypeError, match="dtype int32; received '5'"):
        list(text)


def test_ragged_values_are_sources():
    ragged = Ragged(np.arange(6), np.array([0, 1, 3, 6]))
    rows = Dataset.from_tensor_slices((ragged, [7, 8, 9]))
    assert rows.element_spec == (TensorSpec((None,), "int64"), TensorSpec((), "int64"))
    assert [(x.tolist(), int(y)) for x, y in rows.shuffle(3, seed=1)] != []
    batch = rows.ragged_batch(3).get_single_element()[0]
    assert batch.to_list() == ragged.to_list() == [[0], [1, 2], [3, 4, 5]]
    dataset = Dataset.from_tensors(ragged)
    assert dataset.element_spec == TensorSpec((3, None), "int64")
    assert [row.tolist() for row in dataset.unbatch()] == ragged.to_list()


def test_counted_elements():
    counted = Dataset.from_generator(lambda: range(5))
    assert [int(x) for x in counted.assert_cardinality(5)] == [0, 1, 2, 3, 4]
    assert len(counted.assert_cardinality(5).batch(2)) == 3
    for count, words in ((4, "expected 4; received more"), (6, "received 5")):
        with pytest.raises(RuntimeError, match=words):
            list(counted.assert_cardinality(count))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: d.unbatch(), "unbatch: expected values with rows"),
        (lambda d: d.map(lambda x: [x, x]).unique(), "unique: .*single values"),
        (
            lambda d: d.group_by_window(lambda x: 0, lambda key, group: 3, 2),
            "group_by_window: .*returned a int",
        ),
    ],
)
def test_mismatched_elements_of_a_stage_are_refused(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        list(make(Dataset.range(3)))


@pytest.mark.parametrize(
    "make",
    [
        lambda d, f: d.map(f),
        lambda d, f: d.filter(f),
        lambda d, f: d.take_while(f),
        lambda d, f: d.scan(0, lambda state, x: (state, f(x))),
        lambda d, f: d.group_by_window(f, lambda key, group: group, 2),
        lambda d, f: d.interleave(f),
        lambda d, f: d.flat_map(f),
        lambda d, f: d.bucket_by_sequence_length(f, [3], [2, 2]),
        lambda d, f: d.rejection_resample(f, [1.0], seed=1),
    ],
)
def test_error_in_a_function_of_any_stage_names_its_element(make):
    def function_of(x):
        if x == 7:
            raise KeyError("no")
        return Dataset.range(1) if stage in ("interleave", "flat_map") else 0 * x + 0

    dataset = make(Dataset.range(9).filter(lambda x: x != 2), function_of)
    stage = dataset.get_state()["pipeline"].strip("<>").split(" > ")[-1]
    if stage == "filter" or stage == "take_while":
        dataset = make(
            Dataset.range(9).filter(lambda x: x != 2), lambda x: function_of(x) == 0
        )
    with pytest.raises(KeyError) as error:
        list(dataset)
    (note,) = error.value.__notes__
    assert "element 6" in note and stage.split("_")[0] in note or "group" in note
