"""`tf.data`: toolkit's input pipeline with tensors as elements."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from inspect import isfunction
from os import PathLike
from typing import Any

import numpy as np

from toolkit import data as core
from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.data_options import Options as Options, as_core_options
from toolkit.compat.tensorflow.elements import (
    TensorSpec as TensorSpec,
    as_components,
    as_numpy,
    as_plain,
    as_tensor,
    as_tensors as as_tensors,
    element_of_result,
    to_tensor_spec,
)
from toolkit.compat.tensorflow.modes import compute_eagerly
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.data.structure import map_leaves
from toolkit.data.views import View
from toolkit.errors import UnsupportedError
from toolkit.type_aliases import TensorLike

AUTOTUNE = core.AUTOTUNE
INFINITE_CARDINALITY = core.INFINITE_CARDINALITY
UNKNOWN_CARDINALITY = core.UNKNOWN_CARDINALITY


class Dataset(View):
    """A sequence of elements: a data set of toolkit with tensors.

    It has the methods of `toolkit.data.Dataset`. Their function arguments receive
    tensors, and elements are tensors. `fit` takes the arrays directly.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> dataset = tf.data.Dataset.range(4).map(lambda x: x + 1).batch(2)
        >>> [batch.numpy().tolist() for batch in dataset]
        [[1, 2], [3, 4]]
    """

    def __init__(self, dataset: core.Dataset) -> None:
        super().__init__(dataset, "tensors")

    def __iter__(self) -> _TensorIterator:
        return self.iterate(_TensorIterator)

    def as_numpy_iterator(self) -> core.DatasetIterator:
        """Return an iterator over the elements as NumPy arrays; strings are bytes."""
        return self.iterate(_NumpyIterator)

    def cardinality(self) -> Any:
        """Return the number of elements, or INFINITE_ or UNKNOWN_CARDINALITY; int64."""
        return convert(super().cardinality(), "int64")

    @property
    def element_spec(self) -> Any:
        """Return the TensorSpecs of an element, with its structure."""
        return map_leaves(to_tensor_spec, super().element_spec)

    def fingerprint(self) -> Tensor:
        """Return a hash that changes with the elements; uint64."""
        return convert(np.uint64(self.source.fingerprint()))

    def get_single_element(self, name: str | None = None) -> Any:
        """Return the only element."""
        elements = list(self.take(2))
        if len(elements) != 1:
            raise UnsupportedError(
                f"get_single_element: expected one element; the data set has "
                f"{'more' if elements else 'no elements'}"
            )
        return elements[0]

    @staticmethod
    def sample_from_datasets(datasets: Any, *args: Any, **kwargs: Any) -> Dataset:
        """Sample elements from data sets at random; see `toolkit.data.Dataset` for
        arguments."""
        if len(datasets) == 1:
            return _wrap_result(as_plain(datasets[0]))
        return _sampled(datasets, *args, **kwargs)

    @staticmethod
    def load(
        path: str | PathLike[str],
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[[Dataset], Dataset] | None = None,
        wait: bool = False,
        checkpoint_args: None = None,
        name: str | None = None,
    ) -> Dataset:
        """Load a data set that `save` wrote.

        Args:
            path: the folder.
            element_spec: the TensorSpecs of an element, or None.
            compression: of `save`; the file contains it.
            reader_func: maps a data set of data sets, one for each file, to a data set
                of
                elements; there is one file.
            wait: only False.
            checkpoint_args: only None.
        """
        refuse("load", checkpoint_args=(checkpoint_args, None))
        loaded = _loaded(path, element_spec, compression, wait=wait)
        if reader_func is None:
            return loaded
        return reader_func(_numbers(1).map(lambda _: loaded))

    def with_options(self, options: Any, name: str | None = None) -> Dataset:
        """Return the data set with options."""
        if isinstance(options, Options):
            options.experimental_distribute.check()
        return Dataset(self.source.with_options(as_core_options(options)))


class _TensorIterator(core.DatasetIterator):
    """Iterator whose elements are tensors."""

    def __next__(self) -> Any:
        return _wrap_result(super().__next__())

    def get_next(self) -> Any:
        """Return the next element."""
        return next(self)


class _NumpyIterator(core.DatasetIterator):
    """Iterator whose elements are arrays."""

    def __next__(self) -> Any:
        return as_numpy(super().__next__())


# Arguments that are elements; a list in any other argument stays a list.
_ELEMENTS = ("args", "initial_state", "tensors")


def _wrap_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of tensors as a function of arrays."""

    def call(*elements: Any) -> Any:
        with compute_eagerly():  # also inside a call that builds a graph
            return element_of_result(function(*map(_wrap_result, elements)))

    # callable classes and traced functions
    return update_wrapper(call, function, updated=())


def _wrap_result(value: Any) -> Any:
    """Return an element, or a data set, with tensors."""
    return map_leaves(_shown, value)


def _shown(value: object) -> Any:
    if isinstance(value, core.Dataset):
        return value if isinstance(value, Dataset) else Dataset(value)
    return as_tensor(value)


def _wrap_method(
    method: Callable[..., Any], convert_argument: Callable[[Any], Any]
) -> Any:
    """Wrap a method of toolkit's Dataset for TensorFlow arguments.

    Args:
        method: of toolkit's Dataset.
        convert_argument: converts the arguments that are not elements.
    """
    names = list(inspect.signature(method).parameters)

    def argument(name: str, value: Any) -> Any:
        return as_components(value) if name in _ELEMENTS else convert_argument(value)

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("name", None)
        kwargs = {name: argument(name, value) for name, value in kwargs.items()}
        unnamed = ("",) * (len(args) - len(names))
        named_args = zip((*names, *unnamed), args, strict=False)
        return _wrap_result(method(*(argument(*pair) for pair in named_args), **kwargs))

    return update_wrapper(call, method)


def _wrap_transformation(method: Callable[..., Any]) -> Callable[..., Any]:
    return _wrap_method(
        method, lambda x: _wrap_function(x) if _is_function(x) else as_plain(x)
    )


def _is_function(x: TensorLike) -> bool:
    """Return whether x is a function; a callable Variable counts as a number."""
    return callable(x) and not isinstance(x, Tensor)


def _wrap_source(method: Callable[..., Any]) -> staticmethod[..., Any]:
    """Wrap a source: its functions, such as generators, return arrays."""
    return staticmethod(_wrap_method(method, as_plain))


_loaded = _wrap_method(vars(core.Dataset)["load"].__func__, as_plain)
_numbers = _wrap_method(vars(core.Dataset)["range"].__func__, as_plain)
_sampled = _wrap_method(vars(core.Dataset)["sample_from_datasets"].__func__, as_plain)

# The modules of stages add methods to the core class. The methods of the class itself,
# such as `get_state`, have no elements as arguments or results: they are inherited.
for _name, _method in vars(core.Dataset).items():
    if _name in vars(Dataset):
        continue
    if isinstance(_method, staticmethod):
        setattr(Dataset, _name, _wrap_source(_method.__func__))
    elif isfunction(_method) and _method.__module__ != core.Dataset.__module__:
        setattr(Dataset, _name, _wrap_transformation(_method))


# --- sources that are classes ---------------------------------------------------------


class _SourceType(type):
    """Metaclass whose calls return the core data set as a Dataset of tensors."""

    core: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("name", None)
        kwargs = {key: as_plain(value) for key, value in kwargs.items()}
        return Dataset(cls.core(*map(as_plain, args), **kwargs))


class TFRecordDataset(metaclass=_SourceType):
    """The records of TFRecord files; see `toolkit.data.TFRecordDataset` for
    arguments."""

    core = core.TFRecordDataset


class TextLineDataset(metaclass=_SourceType):
    """The lines of text files; see `toolkit.data.TextLineDataset` for arguments."""

    core = partial(core.TextLineDataset, encoding=None)


class FixedLengthRecordDataset(metaclass=_SourceType):
    """Records of one length; see `toolkit.data` for arguments."""

    core = core.FixedLengthRecordDataset


class CsvDataset(metaclass=_SourceType):
    """The rows of CSV files; see `toolkit.data` for arguments."""

    core = core.CsvDataset


Iterator: type[_TensorIterator] = _TensorIterator
NumpyIterator: type[core.DatasetIterator] = core.DatasetIterator


def __getattr__(name: str) -> Any:
    if name != "experimental":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from toolkit.compat.tensorflow import data_experimental  # it imports this module

    return data_experimental
