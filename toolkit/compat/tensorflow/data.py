"""`tf.data`: the core's input pipeline, whose elements and functions are of tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from inspect import isfunction
from typing import Any

import numpy as np

from toolkit import data as core
from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.elements import (
    TensorSpec as TensorSpec,
    as_components,
    as_numpy,
    as_plain,
    as_tensor,
    as_tensors as as_tensors,
    of_function,
    spec_of_tensors,
)
from toolkit.compat.tensorflow.modes import computing
from toolkit.compat.tensorflow.views import convert
from toolkit.core.tensor import Tensor
from toolkit.data.rows import Rows
from toolkit.data.streams import Pass, Stream
from toolkit.data.structure import map_leaves
from toolkit.errors import UnsupportedError

AUTOTUNE = core.AUTOTUNE
INFINITE_CARDINALITY = core.INFINITE_CARDINALITY
UNKNOWN_CARDINALITY = core.UNKNOWN_CARDINALITY


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
    of_tensors = True

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
        """An iterator over the elements as NumPy arrays; strings are bytes."""
        epoch, self._passes = self._passes, self._passes + 1
        return _NumpyIterator(self, (epoch,))

    def cardinality(self) -> Any:
        """The number of elements, or INFINITE_ or UNKNOWN_CARDINALITY; int64."""
        return convert(self._cardinality(), "int64")

    @property
    def element_spec(self) -> Any:
        """The TensorSpecs of an element's values, nested as they are."""
        return map_leaves(spec_of_tensors, self._spec())

    def fingerprint(self) -> Any:
        """A number that is another where the elements are others; uint64."""
        return convert(np.uint64(self._parents[0].fingerprint()))

    def get_single_element(self, name: Any = None) -> Any:
        """The only element."""
        elements = list(self.take(2))
        if len(elements) != 1:
            raise UnsupportedError(
                f"get_single_element: expected one element; the data set has "
                f"{'more' if elements else 'none'}"
            )
        return elements[0]

    @staticmethod
    def sample_from_datasets(datasets: Any, *args: Any, **kwargs: Any) -> Dataset:
        """Elements of several data sets by chance; the arguments are the core's."""
        if len(datasets) == 1:
            return _returned(as_plain(datasets[0]))
        return _sampled(datasets, *args, **kwargs)

    @staticmethod
    def load(
        path: Any,
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[[Dataset], Dataset] | None = None,
        wait: bool = False,
        checkpoint_args: None = None,
        name: Any = None,
    ) -> Dataset:
        """What `save` has written.

        Args:
            path: the folder.
            element_spec: the TensorSpecs of an element, if they are known.
            compression: as it was saved; the file itself says it.
            reader_func: from a data set of data sets, one for each file, of which there
                is one, to that of their elements.
            wait: only False.
            checkpoint_args: only None.
        """
        refuse("load", checkpoint_args=(checkpoint_args, None))
        loaded = _loaded(path, element_spec, compression, wait=wait)
        if reader_func is None:
            return loaded
        return reader_func(_numbers(1).map(lambda _: loaded))

    def with_options(self, options: Any, name: Any = None) -> Dataset:
        """The data set with options."""
        return Dataset(self._parents[0].with_options(options))


class _TensorIterator(core.DatasetIterator):
    """A pass whose elements are tensors."""

    def __next__(self) -> Any:
        return _returned(super().__next__())

    def get_next(self) -> Any:
        """The next element."""
        return next(self)

    @property
    def element_spec(self) -> Any:
        """The TensorSpecs of an element's values, nested as they are."""
        return map_leaves(spec_of_tensors, self._dataset._spec())


class _NumpyIterator(core.DatasetIterator):
    """A pass whose elements are arrays."""

    def __next__(self) -> Any:
        return as_numpy(super().__next__())


# Arguments that are elements; lists in others are lists.
_ELEMENTS = ("args", "initial_state", "tensors")


def _of_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors as one of the core's arrays."""

    def call(*elements: Any) -> Any:
        with computing():  # also where calls make a graph
            return of_function(function(*map(_returned, elements)))

    return update_wrapper(call, function, updated=())  # classes and traced functions


def _returned(value: Any) -> Any:
    """An element, or a data set, as users see it."""
    return map_leaves(_shown, value)


def _shown(value: Any) -> Any:
    if isinstance(value, core.Dataset):
        return value if isinstance(value, Dataset) else Dataset(value)
    return as_tensor(value)


def _calling(method: Callable[..., Any], given: Callable[[Any], Any]) -> Any:
    """The core's method, called with arguments of TensorFlow's.

    Args:
        method: of the core's Dataset.
        given: makes arguments that are no elements those of the core.
    """
    names = list(inspect.signature(method).parameters)

    def argument(name: str, value: Any) -> Any:
        return as_components(value) if name in _ELEMENTS else given(value)

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("name", None)
        kwargs = {name: argument(name, value) for name, value in kwargs.items()}
        rest = ("",) * (len(args) - len(names))
        known = zip((*names, *rest), args, strict=False)
        return _returned(method(*(argument(*pair) for pair in known), **kwargs))

    return update_wrapper(call, method)


def _transforming(method: Callable[..., Any]) -> Callable[..., Any]:
    return _calling(
        method, lambda x: _of_tensors(x) if _is_function(x) else as_plain(x)
    )


def _is_function(x: Any) -> bool:
    """Whether x is called; the value of a Variable can be, but is a number here."""
    return callable(x) and not isinstance(x, Tensor)


def _making(method: Callable[..., Any]) -> staticmethod[..., Any]:
    """A source: its functions, such as generators, make arrays themselves."""
    return staticmethod(_calling(method, as_plain))


_loaded = _calling(vars(core.Dataset)["load"].__func__, as_plain)
_numbers = _calling(vars(core.Dataset)["range"].__func__, as_plain)
_sampled = _calling(vars(core.Dataset)["sample_from_datasets"].__func__, as_plain)

# The modules of stages add these to the class of the core. Methods that the class
# itself defines, such as `get_state`, take and return no elements: they are inherited.
for _name, _method in vars(core.Dataset).items():
    if _name in vars(Dataset):
        continue
    if isinstance(_method, staticmethod):
        setattr(Dataset, _name, _making(_method.__func__))
    elif isfunction(_method) and _method.__module__ != core.Dataset.__module__:
        setattr(Dataset, _name, _transforming(_method))


# --- sources that are classes ---------------------------------------------------------


class _Made(type):
    """Calls make what the core's class makes, as a Dataset of tensors."""

    core: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("name", None)
        kwargs = {key: as_plain(value) for key, value in kwargs.items()}
        return Dataset(cls.core(*map(as_plain, args), **kwargs))


class TFRecordDataset(metaclass=_Made):
    """The records of TFRecord files; the arguments are the core's."""

    core = core.TFRecordDataset


class TextLineDataset(metaclass=_Made):
    """The lines of text files, of any encoding; the arguments are the core's."""

    core = partial(core.TextLineDataset, encoding=None)


class FixedLengthRecordDataset(metaclass=_Made):
    """Records of one length; the arguments are the core's."""

    core = core.FixedLengthRecordDataset


class CsvDataset(metaclass=_Made):
    """The rows of CSV files; the arguments are the core's."""

    core = core.CsvDataset


Iterator: type[_TensorIterator] = _TensorIterator
NumpyIterator: type[core.DatasetIterator] = core.DatasetIterator
Options: type[core.Options] = core.Options


def __getattr__(name: str) -> Any:
    if name != "experimental":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from toolkit.compat.tensorflow import data_experimental  # which imports this module

    return data_experimental
