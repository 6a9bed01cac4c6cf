"""Batches from whatever `fit` and its kin are given.

Arrays are never copied as a whole: each batch is gathered by index, or is a view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

import numpy as np

from toolkit import config, dtypes, tree
from toolkit.errors import (
    ArgumentError,
    DTypeError,
    ShapeError,
    ToolkitError,
    unknown_choice,
)
from toolkit.random import draw_seed
from toolkit.tensor import Tensor, backend
from toolkit.variable import Variable

DEFAULT_BATCH = 32
_PARTS = ("x", "y", "sample_weight")


def unpack_x_y_sample_weight(data: Any) -> tuple[Any, Any, Any]:
    """(x, y, sample_weight) of a batch given as x, (x,), (x, y) or all three.

    Example:
        >>> unpack_x_y_sample_weight(("x", "y"))
        ('x', 'y', None)
    """
    if not isinstance(data, (tuple, list)):
        return data, None, None
    if not 1 <= len(data) <= 3:
        raise ArgumentError(
            "batch: expected x, (x,), (x, y) or (x, y, sample_weight); received "
            f"{len(data)} parts"
        )
    x, y, sample_weight = (*data, None, None)[:3]
    return x, y, sample_weight


def pack_x_y_sample_weight(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """A batch as `fit` takes it: x alone, (x, y) or (x, y, sample_weight)."""
    if y is None:
        return (x,) if isinstance(x, (tuple, list)) else x
    return (x, y) if sample_weight is None else (x, y, sample_weight)


@contextmanager
def named(caller: str) -> Iterator[None]:
    """Put the name of the method that was called in front of errors from inside."""
    try:
        yield
    except ToolkitError as error:
        error.args = (f"{caller}: {error}",)
        raise


# --- arrays --------------------------------------------------------------------------


def is_array(x: Any) -> bool:
    """Whether `x` is an array or tensor of whatever library."""
    return isinstance(x, (np.ndarray, Tensor, Variable)) or hasattr(x, "__array__")


def is_arrays(x: Any) -> bool:
    """Whether `x` is an array or a list, tuple or dict, as nests of arrays are."""
    return tree.is_nested(x) or is_array(x)


def to_array(x: Any, what: str) -> np.ndarray[Any, Any]:
    """`x` as a NumPy array of numbers, without a copy where that is possible."""
    if hasattr(x, "detach"):  # a torch tensor
        x = x.detach().cpu()
    array = np.asarray(x.numpy() if isinstance(x, (Tensor, Variable)) else x)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise DTypeError(
            f"{what}: expected numbers; received data of dtype {array.dtype}"
        )
    return array


def floating(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Other floats as floatx, as models compute in; the rest as it is."""
    if array.dtype.kind != "f" or array.dtype.name == config.floatx():
        return array
    return array.astype(dtypes.numpy_dtype(config.floatx()))


def as_tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor that shares the array's memory."""
    return Tensor(backend().asarray(array))


def _arrays(structure: Any, what: str) -> Any:
    """A nest of arrays, checked to be one; None stays None."""

    def convert(leaf: Any) -> Any:
        if leaf is None:
            return None
        if not is_array(leaf):
            raise ArgumentError(
                f"{what}: expected an array, or a list, tuple or dict of arrays; "
                f"received {leaf!r:.60} of type {type(leaf).__name__} (make an array "
                "of a list of numbers by np.array)"
            )
        array = to_array(leaf, what)
        if array.ndim == 0:
            raise ShapeError(f"{what}: expected arrays of samples; received a scalar")
        return array

    return tree.map_structure(convert, structure)


def _length(parts: dict[str, Any]) -> int:
    """The number of samples, which all arrays must agree on."""
    lengths = {
        name: [len(a) for a in tree.flatten(part) if a is not None]
        for name, part in parts.items()
    }
    found = {n for part in lengths.values() for n in part}
    if not lengths["x"]:
        raise ArgumentError("expected data `x`; received no arrays")
    if len(found) > 1:
        sizes = "; ".join(f"{k}: {_only(v)}" for k, v in lengths.items() if v)
        raise ShapeError(
            f"expected the same number of samples in all arrays; received {sizes}"
        )
    return found.pop()


def _only(values: list[int]) -> Any:
    return values[0] if len(values) == 1 else values


def shuffle_generator() -> np.random.Generator:
    """A generator for the order of one epoch, keyed by `set_random_seed`."""
    key = draw_seed(None).numpy().astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


class ArraySource:
    """Batches of arrays in memory.

    Args:
        x, y, sample_weight: nests of arrays with one entry per sample.
        batch_size: samples per batch.
        steps: number of batches, which gives the batch size if that is None.
        shuffle: True for a new order of samples each epoch, "batch" for a new order
            inside each batch.
        class_weight: class -> weight of its samples.
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        batch_size: int | None,
        steps: int | None,
        shuffle: bool | str,
        class_weight: dict[int, float] | None,
    ) -> None:
        given = zip(_PARTS, (x, y, sample_weight), strict=True)
        parts = {name: _arrays(part, name) for name, part in given}
        self.samples = _length(parts)
        if self.samples == 0:
            raise ArgumentError("expected at least one sample; received empty arrays")
        x, y, weights = parts.values()
        if weights is not None and tree.is_nested(y) and not tree.is_nested(weights):
            weights = _repeat(weights, y)
        if class_weight is not None:
            weights = weights_of_classes(y, weights, class_weight)
        if batch_size is None:
            batch_size = ceil(self.samples / steps) if steps else DEFAULT_BATCH
        if batch_size < 1:
            raise ArgumentError(f"expected batch_size >= 1; received {batch_size}")
        self.batch_size = int(batch_size)
        self.num_batches: int | None = ceil(self.samples / self.batch_size)
        self.shuffle = shuffle
        self._structure = _trimmed(x, y, weights)
        self._leaves = tree.flatten(self._structure)
        self._is_flat = not any(map(tree.is_nested, self._structure))

    def epoch(self) -> Iterator[Any]:
        """The batches of one epoch, as tuples of tensors."""
        order = None
        rng = shuffle_generator() if self.shuffle else None
        if rng is not None and self.shuffle != "batch":
            order = rng.permutation(self.samples)
        for start in range(0, self.samples, self.batch_size):
            stop = min(start + self.batch_size, self.samples)
            if order is not None:
                index: Any = order[start:stop]
            elif rng is not None:
                index = start + rng.permutation(stop - start)
            else:
                index = slice(start, stop)
            yield self._gather(index)

    def _gather(self, index: Any) -> Any:
        rows = [
            None if a is None else as_tensor(floating(_take(a, index)))
            for a in self._leaves
        ]
        if self._is_flat:
            return tuple(rows)
        return tree.pack_sequence_as(self._structure, rows)


def _take(array: np.ndarray[Any, Any], index: Any) -> np.ndarray[Any, Any]:
    return array[index] if isinstance(index, slice) else array.take(index, axis=0)


def _repeat(weights: np.ndarray[Any, Any], y: Any) -> Any:
    """One array of sample weights for each of several outputs."""
    if weights.ndim > 1 and weights.shape[1:] != (1,):
        raise ShapeError(
            "sample_weight: expected one weight per sample, shape (samples,), or one "
            f"array per output; received the shape {weights.shape}"
        )
    return tree.map_structure(lambda _: weights, y)


def weights_of_classes(y: Any, weights: Any, class_weight: dict[int, float]) -> Any:
    """Sample weights from the weights of the samples' classes."""
    if weights is not None:
        raise ArgumentError("class_weight and sample_weight exclude each other")
    if y is None or tree.is_nested(y):
        raise ArgumentError(
            "class_weight: expected targets `y` of a single output; received "
            f"{'None' if y is None else 'several'}"
        )
    labels = np.asarray(y)
    if labels.ndim > 1:
        one_hot = labels.shape[-1] != 1
        labels = labels.argmax(-1) if one_hot else labels[..., 0]
    labels = np.round(labels).astype("int64")
    if labels.ndim != 1:
        raise ShapeError(
            "class_weight: expected one label per sample; received labels of shape "
            f"{np.shape(y)}"
        )
    classes, places = np.unique(labels, return_inverse=True)
    values = [class_weight.get(int(c), 1.0) for c in classes]
    return np.array(values, dtypes.numpy_dtype(config.floatx()))[places]


def _trimmed(x: Any, y: Any, weights: Any) -> tuple[Any, ...]:
    if weights is not None:
        return x, y, weights
    return (x,) if y is None else (x, y)


def split_arrays(
    x: Any, y: Any, sample_weight: Any, validation_split: float
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """The first samples for training, the last `validation_split` for validation."""
    if not 0 < validation_split < 1:
        raise ArgumentError(
            f"expected 0 < validation_split < 1; received {validation_split}"
        )
    if not _all_arrays((x, y, sample_weight)):
        raise ArgumentError(
            "validation_split can split arrays only; pass validation_data "
            f"beside {type(x).__name__}"
        )
    given = zip(_PARTS, (x, y, sample_weight), strict=True)
    parts = {name: _arrays(part, name) for name, part in given}
    samples = _length(parts)
    at = int(samples * (1.0 - validation_split))
    if at in (0, samples):
        raise ArgumentError(
            f"{samples} samples cannot be split into training and validation by "
            f"validation_split={validation_split}"
        )

    def cut(rows: slice) -> Any:
        return tuple(
            tree.map_structure(lambda a: None if a is None else a[rows], part)
            for part in parts.values()
        )

    return cut(slice(None, at)), cut(slice(at, None))


def _all_arrays(structure: Any) -> bool:
    return all(leaf is None or is_array(leaf) for leaf in tree.flatten(structure))


# --- data sets, sequences and generators ----------------------------------------------


class BatchSource:
    """Batches that come ready made: from an iterable, an iterator or a sequence.

    Args:
        batches: a Python iterator; an object with `__getitem__` and `__len__`, or
            `num_batches`, that returns whole batches; or any other iterable.
        class_weight: class -> weight of its samples.
        shuffle: whether to visit the batches of a sequence in a new order each epoch.
    """

    def __init__(
        self, batches: Any, class_weight: dict[int, float] | None, shuffle: bool | str
    ) -> None:
        self._batches = batches
        self._class_weight = class_weight
        self._shuffle = bool(shuffle)
        self.is_iterator = hasattr(batches, "__next__")
        self.batch_size = None
        self.num_batches = None if self.is_iterator else _count_batches(batches)
        countable = self.num_batches is not None or not hasattr(batches, "__iter__")
        self._is_sequence = countable and hasattr(batches, "__getitem__")
        if self.num_batches == 0:
            raise ArgumentError(
                "expected at least one batch; received an empty data set"
            )

    def epoch(self) -> Iterator[Any]:
        """The batches of one epoch, as tuples of tensors."""
        _notify(self._batches, "on_epoch_begin")
        for batch in self._one_pass():
            yield self._convert(batch)
        _notify(self._batches, "on_epoch_end")

    def _one_pass(self) -> Iterable[Any]:
        if not self._is_sequence:
            return iter(self._batches)
        if self.num_batches is None:
            return self._endless()
        order = np.arange(self.num_batches)
        if self._shuffle:
            order = shuffle_generator().permutation(self.num_batches)
        return (self._batches[int(i)] for i in order)

    def _endless(self) -> Iterator[Any]:
        i = 0
        while True:
            yield self._batches[i]
            i += 1

    def _convert(self, batch: Any) -> Any:
        if not isinstance(batch, (tuple, list)):
            batch = (batch,)
        x, y, weights = unpack_x_y_sample_weight(tuple(batch))
        given = zip(_PARTS, (x, y, weights), strict=True)
        x, y, weights = (batch_tensors(part, name) for name, part in given)
        if self._class_weight is not None:
            weights = as_tensor(weights_of_classes(y, weights, self._class_weight))
        return _trimmed(x, y, weights)


def batch_tensors(structure: Any, what: str) -> Any:
    """A nest of arrays as tensors that share their memory; None stays None."""

    def convert(leaf: Any) -> Any:
        if leaf is None or isinstance(leaf, Tensor):
            return leaf
        array = floating(to_array(leaf, what))
        if array.ndim == 0:
            raise ShapeError(f"{what}: expected batches of samples; received a scalar")
        return as_tensor(array)

    return tree.map_structure(convert, structure)


def _count_batches(batches: Any) -> int | None:
    """The number of batches of an epoch; None where it is unknown or endless."""
    count = getattr(batches, "num_batches", None)
    if count is None and hasattr(batches, "__len__"):
        try:
            count = len(batches)
        except TypeError:  # a data set that does not know its length
            count = None
    return None if count is None else int(count)


def _notify(batches: Any, hook: str) -> None:
    method = getattr(batches, hook, None)
    if callable(method):
        method()


def make_source(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    steps: int | None = None,
    shuffle: bool | str = False,
    class_weight: dict[int, float] | None = None,
) -> ArraySource | BatchSource:
    """The batches of whatever `x` is."""
    if shuffle not in (True, False, "batch"):
        raise unknown_choice("shuffle", shuffle, (True, False, "batch"))
    if x is None:
        raise ArgumentError("expected data `x`; received None")
    if is_arrays(x):
        return ArraySource(
            x, y, sample_weight, batch_size, steps, shuffle, class_weight
        )
    if isinstance(x, (str, bytes)) or not (
        hasattr(x, "__iter__") or hasattr(x, "__getitem__")
    ):
        raise ArgumentError(
            "expected x to be arrays, a generator, or an object with `__iter__`, or "
            f"`__getitem__` and `__len__`, that returns batches; received {x!r:.60} of "
            f"type {type(x).__name__}"
        )
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ArgumentError(
                f"expected `{name}` to be part of the batches that x "
                f"({type(x).__name__}) returns; received it beside x"
            )
    if batch_size is not None:
        raise ArgumentError(
            "expected batch_size=None, because x returns whole batches; received "
            f"{batch_size}"
        )
    return BatchSource(x, class_weight, shuffle)
