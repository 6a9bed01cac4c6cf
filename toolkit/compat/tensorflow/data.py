"""`tf.data`: the core's input pipeline, whose elements and functions are of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from types import SimpleNamespace
from typing import Any

from toolkit import data as core
from toolkit.compat.tensorflow import csv_tables
from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.modes import computing
from toolkit.compat.tensorflow.ragged import RaggedTensor
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.types import TensorShape
from toolkit.compat.tensorflow.views import convert
from toolkit.core.strings import StringTensor as CoreStringTensor, is_string
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.data.rows import Rows
from toolkit.data.streams import Pass, Stream
from toolkit.data.structure import map_leaves
from toolkit.errors import UnsupportedError

AUTOTUNE = core.AUTOTUNE
INFINITE_CARDINALITY = core.INFINITE_CARDINALITY
UNKNOWN_CARDINALITY = core.UNKNOWN_CARDINALITY


class TensorSpec(core.TensorSpec):
    """The shape and dtype of a tensor; None is an extent that varies.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.TensorSpec([None, 3], tf.int32).shape
        TensorShape([None, 3])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape is not None:
            object.__setattr__(self, "shape", TensorShape(self.shape))

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        """The spec of a tensor."""
        return cls(tensor.shape, tensor.dtype, name)


def as_tensors(element: Any) -> Any:
    """An element of the core's with tensors for its arrays."""
    return map_leaves(_as_tensor, element)


def _as_tensor(value: Any) -> Any:
    if isinstance(value, core.Dataset):  # of a window
        return value if isinstance(value, Dataset) else Dataset(value)
    if is_string(value):
        return StringTensor(value)
    if isinstance(value, core.Ragged):
        return RaggedTensor(value.values, value.row_splits)
    return convert(value)


def as_arrays(element: Any) -> Any:
    """An element with arrays for its tensors; lists of tensors are stacked."""
    return map_leaves(_as_array, element)


def _as_array(value: Any) -> Any:
    if isinstance(value, (Tensor, Variable, CoreStringTensor)):
        return value.numpy()
    if isinstance(value, RaggedTensor):
        return core.Ragged(value.values, value.row_splits)
    if not isinstance(value, list) or is_string(value):
        return value
    is_datasets = any(isinstance(part, core.Dataset) for part in value)
    return value if is_datasets else convert(value).numpy()


class Dataset(core.Dataset):
    """Elements that come one after the other: the core's, as tensors.

    It has the methods of `toolkit.data.Dataset`; functions that are given to these get
    tensors, and elements are tensors. What `fit` takes are the arrays themselves.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> dataset = tf.data.Dataset.range(4).map(lambda x: x + 1).batch(2)
        >>> [batch.numpy().tolist() for batch in dataset]
        [[1, 2], [3, 4]]
    """

    _name = "tensors"

    def __init__(self, dataset: core.Dataset) -> None:
        super().__init__(dataset)
        self._passes = 0

    def _cardinality(self) -> int:
        return self._parents[0]._cardinality()

    def _rows(self, here: Pass) -> Rows | None:
        return here.rows(self._parents[0])

    def _stream(self, here: Pass) -> Stream:
        return self._parents[0]._stream(here)

    def _spec(self) -> Any:
        return self._parents[0]._spec()

    def __iter__(self) -> _TensorIterator:
        epoch, self._passes = self._passes, self._passes + 1
        return _TensorIterator(self, (epoch,))

    def as_numpy_iterator(self) -> core.DatasetIterator:
        """An iterator over the elements as NumPy arrays."""
        return iter(self._parents[0])

    def cardinality(self) -> Any:
        """The number of elements, or INFINITE_ or UNKNOWN_CARDINALITY; int64."""
        return convert(self._cardinality(), "int64")

    @property
    def element_spec(self) -> Any:
        """The TensorSpecs of an element's values, nested as they are."""
        return map_leaves(lambda spec: TensorSpec(spec.shape, spec.dtype), self._spec())

    def get_single_element(self, name: Any = None) -> Any:
        """The only element."""
        elements = list(self.take(2))
        if len(elements) != 1:
            raise UnsupportedError(
                f"get_single_element: expected one element; the data set has "
                f"{'more' if elements else 'none'}"
            )
        return elements[0]

    def with_options(self, options: Any, name: Any = None) -> Dataset:
        """The data set with options, those of `tf.data.Options` or the core's."""
        if isinstance(options, Options):
            options = options.of_the_core()
        return Dataset(self._parents[0].with_options(options))


class _TensorIterator(core.DatasetIterator):
    """A pass whose elements are tensors."""

    def __next__(self) -> Any:
        return as_tensors(super().__next__())

    def get_next(self) -> Any:
        """The next element."""
        return next(self)


def _of_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors as one of the core's arrays."""

    def call(*elements: Any) -> Any:
        with computing():  # also where calls make a graph
            return as_arrays(function(*map(as_tensors, elements)))

    return update_wrapper(call, function, updated=())  # classes and traced functions


def _given(value: Any) -> Any:
    if isinstance(value, Dataset):
        return value._parents[0]
    return _of_tensors(value) if callable(value) else as_arrays(value)


def _returned(value: Any) -> Any:
    if isinstance(value, core.Dataset):
        return value if isinstance(value, Dataset) else Dataset(value)
    return as_tensors(value)


def _transforming(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Dataset, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("name", None)
        kwargs = {key: _given(value) for key, value in kwargs.items()}
        return _returned(method(self._parents[0], *map(_given, args), **kwargs))

    return update_wrapper(call, method)


def _making(method: Callable[..., Any]) -> staticmethod[..., Any]:
    """A source: its functions, such as generators, make arrays themselves."""

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("name", None)
        kwargs = {key: as_arrays(value) for key, value in kwargs.items()}
        return _returned(method(*map(as_arrays, args), **kwargs))

    return staticmethod(update_wrapper(call, method))


for _name, _method in vars(core.Dataset).items():
    if isinstance(_method, staticmethod):
        setattr(Dataset, _name, _making(_method.__func__))
    elif (
        callable(_method)
        and not _name.startswith("_")
        and _name not in vars(Dataset)
        and _name not in ("apply", "options", "prefetched", "plot", "stats", "timeline")
    ):
        setattr(Dataset, _name, _transforming(_method))


# --- sources that are classes ---------------------------------------------------------


class _Made(type):
    """Calls make what the core's class makes, as a Dataset of tensors."""

    core: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("name", None)
        return Dataset(cls.core(*map(as_arrays, args), **kwargs))


class TFRecordDataset(metaclass=_Made):
    """The records of TFRecord files; the arguments are the core's."""

    core = core.TFRecordDataset


class TextLineDataset(metaclass=_Made):
    """The lines of text files; the arguments are the core's."""

    core = core.TextLineDataset


class FixedLengthRecordDataset(metaclass=_Made):
    """Records of one length; the arguments are the core's."""

    core = core.FixedLengthRecordDataset


class CsvDataset(metaclass=_Made):
    """The rows of CSV files; the arguments are the core's."""

    core = core.CsvDataset


Iterator: type[_TensorIterator] = _TensorIterator
NumpyIterator: type[core.DatasetIterator] = core.DatasetIterator


# --- options --------------------------------------------------------------------------


class Options:
    """What holds for a whole data set, set attribute by attribute.

    Attributes:
        deterministic: whether parallel stages keep their order.
        autotune: its `enabled`, `cpu_budget` and `ram_budget`.
        threading: its `private_threadpool_size`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> options = tf.data.Options()
        >>> options.deterministic = False
        >>> tf.data.Dataset.range(2).with_options(options).options().deterministic
        False
    """

    _names = ("deterministic", "experimental_deterministic", "autotune", "threading")

    def __init__(self) -> None:
        self.deterministic: bool | None = None
        self.autotune: SimpleNamespace = SimpleNamespace(
            enabled=None, cpu_budget=None, ram_budget=None
        )
        self.threading: SimpleNamespace = SimpleNamespace(private_threadpool_size=None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._names:
            raise UnsupportedError(
                f"Options: {name} is not supported; there are {', '.join(self._names)}"
            )
        name = "deterministic" if name == "experimental_deterministic" else name
        super().__setattr__(name, value)

    def of_the_core(self) -> core.Options:
        """The core's options."""
        return core.Options(
            self.deterministic,
            self.threading.private_threadpool_size,
            self.autotune.cpu_budget,
            self.autotune.ram_budget,
            self.autotune.enabled,
        )


def _cardinality(dataset: core.Dataset) -> Any:
    return convert(dataset._cardinality(), "int64")


def _applied(name: str) -> Callable[..., Any]:
    """A function that `apply` takes: what the method of this name does."""

    def make(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        return lambda dataset: getattr(dataset, name)(*args, **kwargs)

    make.__name__ = name
    return make


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
    """Batches of a CSV file's columns by name, with the label apart if it is named.

    Args:
        file_pattern: the path of a file, or a list of paths or patterns.
        batch_size: rows in a batch.
        column_names: those of all columns; the first line's by default.
        column_defaults: for each column a dtype or the value of an empty field;
            found in the first `num_rows_for_inference` rows by default.
        label_name: the column that is the second part of the elements.
        select_columns: the names, or numbers, of the columns to read.
        num_epochs: how often; None for ever.
        shuffle, shuffle_buffer_size, shuffle_seed: whether and how rows are mixed.
        prefetch_buffer_size: batches that are made ahead.
        num_parallel_reads: only None.
        sloppy, ignore_errors: only False.
        encoding: only "utf-8".
    """
    refuse(
        "make_csv_dataset",
        num_parallel_reads=(num_parallel_reads, None),
        sloppy=(sloppy, False),
        ignore_errors=(ignore_errors, False),
        encoding=(encoding, "utf-8"),
    )
    paths = csv_tables.paths_of(file_pattern)
    table = csv_tables.Table.of(
        paths[0],
        {"delimiter": field_delim, "quotes": use_quote_delim, "na": na_value},
        column_names=column_names,
        header=header,
        compression=compression_type,
        rows=num_rows_for_inference,
    )
    rows = table.read(paths, column_defaults, select_columns)
    if shuffle:
        rows = rows.shuffle(shuffle_buffer_size, seed=shuffle_seed)
    rows = rows.repeat(num_epochs).batch(batch_size)
    named = rows.map(table.named(select_columns, label_name))
    return Dataset(named.prefetch(prefetch_buffer_size or AUTOTUNE))


_APPLIED = (
    *("bucket_by_sequence_length", "get_single_element", "group_by_window"),
    *("ignore_errors", "scan", "snapshot", "take_while", "unbatch", "unique"),
)

experimental: SimpleNamespace = SimpleNamespace(
    **{name: _applied(name) for name in _APPLIED},
    AUTOTUNE=AUTOTUNE,
    INFINITE_CARDINALITY=INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY=UNKNOWN_CARDINALITY,
    CsvDataset=CsvDataset,
    cardinality=_cardinality,
    make_csv_dataset=make_csv_dataset,
    sample_from_datasets=Dataset.sample_from_datasets,
    choose_from_datasets=Dataset.choose_from_datasets,
)
