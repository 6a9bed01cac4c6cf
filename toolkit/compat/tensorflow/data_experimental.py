"""`tf.data.experimental`: legacy names of methods, and tables of CSV files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit.compat.tensorflow import csv_tables
from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.data import (
    AUTOTUNE as AUTOTUNE,
    INFINITE_CARDINALITY as INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY,
    CsvDataset as CsvDataset,
    Dataset,
)
from toolkit.compat.tensorflow.data_options import (
    AutoShardPolicy as AutoShardPolicy,
    DistributeOptions as DistributeOptions,
)
from toolkit.type_aliases import DTypeLike

Applied = Callable[[Dataset], Any]  # the argument of `apply`


def cardinality(dataset: Dataset) -> Any:
    """Return the number of elements, or INFINITE_ or UNKNOWN_CARDINALITY; int64."""
    return dataset.cardinality()


def get_single_element(dataset: Dataset) -> Any:
    """Return the only element."""
    return dataset.get_single_element()


def get_structure(dataset_or_iterator: Any) -> Any:
    """Return the TensorSpecs of an element, with its structure."""
    return dataset_or_iterator.element_spec


def sample_from_datasets(
    datasets: Sequence[Dataset],
    weights: Any = None,
    seed: int | None = None,
    stop_on_empty_dataset: bool = False,
) -> Dataset:
    """Call `Dataset.sample_from_datasets`."""
    return Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)


def choose_from_datasets(
    datasets: Sequence[Dataset],
    choice_dataset: Dataset,
    stop_on_empty_dataset: bool = False,
) -> Dataset:
    """Call `Dataset.choose_from_datasets`, which skips empty data sets."""
    choose: Any = Dataset.choose_from_datasets
    return choose(datasets, choice_dataset, stop_on_empty_dataset)


def Counter(start: int = 0, step: int = 1, dtype: DTypeLike = "int64") -> Dataset:
    """Return an infinite data set of numbers that increase by a step."""
    source: Any = Dataset.counter
    return source(start, step, dtype)


def RandomDataset(seed: int | None = None) -> Dataset:
    """Return an infinite data set of random integers."""
    source: Any = Dataset.random
    return source(seed)


def dense_to_ragged_batch(
    batch_size: int, drop_remainder: bool = False, row_splits_dtype: DTypeLike = "int64"
) -> Applied:
    """Batch elements of different lengths as ragged rows, with `apply`."""
    return lambda dataset: dataset.ragged_batch(
        batch_size, drop_remainder, row_splits_dtype
    )


def enumerate_dataset(start: int = 0) -> Applied:
    """Number the elements, with `apply`."""
    return lambda dataset: dataset.enumerate(start)


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: int,
    num_parallel_batches: None = None,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
) -> Applied:
    """Apply a function to elements and batch the results, with `apply`.

    Args:
        map_func: from an element to another.
        batch_size: elements in a batch.
        num_parallel_batches: only None.
        drop_remainder: whether to drop a smaller last batch.
        num_parallel_calls: the number of elements to compute in parallel.
    """
    refuse("map_and_batch", num_parallel_batches=(num_parallel_batches, None))
    return lambda dataset: dataset.map(map_func, num_parallel_calls).batch(
        batch_size, drop_remainder
    )


def shuffle_and_repeat(
    buffer_size: int, count: int | None = None, seed: int | None = None
) -> Applied:
    """Shuffle the elements and repeat them, with `apply`."""
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


def save(dataset: Dataset, path: Any, compression: str | None = None) -> None:
    """Call `Dataset.save`."""
    dataset.save(path, compression)


def load(path: Any, element_spec: Any = None, compression: str | None = None) -> Any:
    """Call `Dataset.load`."""
    source: Any = Dataset.load
    return source(path, element_spec, compression)


def _make_transformation(name: str) -> Callable[..., Applied]:
    """Create a function for `apply` from the method with this name."""

    def make(*args: Any, **kwargs: Any) -> Applied:
        return lambda dataset: getattr(dataset, name)(*args, **kwargs)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"`apply` it: `Dataset.{name}`, whose arguments it takes."
    return make


assert_cardinality: Callable[..., Applied] = _make_transformation("assert_cardinality")
bucket_by_sequence_length: Callable[..., Applied] = _make_transformation(
    "bucket_by_sequence_length"
)
group_by_window: Callable[..., Applied] = _make_transformation("group_by_window")
ignore_errors: Callable[..., Applied] = _make_transformation("ignore_errors")
scan: Callable[..., Applied] = _make_transformation("scan")
snapshot: Callable[..., Applied] = _make_transformation("snapshot")
take_while: Callable[..., Applied] = _make_transformation("take_while")
unbatch: Callable[..., Applied] = _make_transformation("unbatch")
unique: Callable[..., Applied] = _make_transformation("unique")


def make_csv_dataset(
    file_pattern: Any,
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[Any] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int = 100,
    compression_type: str | None = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
) -> Dataset:
    """Return batches of a CSV file's columns by name, with a separate label if named.

    Args:
        file_pattern: the path of a file, or a list of paths or patterns.
        batch_size: rows in a batch.
        column_names: of all columns; the default is the first line.
        column_defaults: for each column a dtype or the value of an empty field;
            inferred from the first `num_rows_for_inference` rows by default.
        label_name: the column that is the second part of the elements.
        select_columns: the names, or indices, of the columns to read.
        num_epochs: the number of epochs; None is infinite.
        shuffle, shuffle_buffer_size, shuffle_seed: whether and how to shuffle rows.
        prefetch_buffer_size: the number of batches to prefetch.
        num_parallel_reads: the number of files to interleave; None reads the files
            sequentially.
        sloppy: only False.
        ignore_errors: whether to skip rows with errors.
        encoding: only "utf-8".
    """
    refuse(
        "make_csv_dataset",
        sloppy=(sloppy, False),
        encoding=(encoding, "utf-8"),
    )
    paths = csv_tables.expand_paths(file_pattern)
    table = csv_tables.Table.of(
        paths[0],
        {"delimiter": field_delim, "quotes": use_quote_delim, "na": na_value},
        column_names=column_names,
        header=header,
        compression=compression_type,
        rows=num_rows_for_inference,
    )
    rows = table.read(
        paths, column_defaults, select_columns, num_parallel_reads, ignore_errors
    )
    if shuffle:
        rows = rows.shuffle(shuffle_buffer_size, seed=shuffle_seed)
    rows = rows.repeat(num_epochs).batch(batch_size)
    named = rows.map(table.name_columns(select_columns, label_name))
    return Dataset(named.prefetch(prefetch_buffer_size or AUTOTUNE))
