"""Arrays for `fit`, `evaluate` and `predict`: checks, splits and conversion."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np

from toolkit import dtypes, settings, tree
from toolkit.arguments import is_real
from toolkit.console.frames import warn
from toolkit.core.composites import Composite, make_ragged
from toolkit.core.convert import is_strings
from toolkit.core.host_calls import PreparedStrings
from toolkit.core.strings import as_array
from toolkit.core.tensor import Tensor, backend
from toolkit.core.variable import Variable
from toolkit.data.batch_shards import LocalRows
from toolkit.data.padding import Ragged
from toolkit.data.rows import Rows
from toolkit.errors import ArgumentError, DTypeError, ShapeError
from toolkit.type_aliases import Array

# rows that processes compare, and the limit in bytes
_LOOKED_AT, _LOOKED_AT_BYTES = 64, 1 << 22

FIELDS = ("x", "y", "sample_weight")


def is_array(x: object) -> bool:
    """Return whether `x` is an array or tensor of any library."""
    return isinstance(x, (np.ndarray, Tensor, Variable)) or hasattr(x, "__array__")


def is_arrays(x: object) -> bool:
    """Return whether `x` is an array, or a list, tuple or dict."""
    return tree.is_nested(x) or is_array(x)


def to_array(x: Any, name: str) -> Array:
    """Return `x` as a NumPy array of numbers, without a copy if possible.

    The inputs of a model, `name` "x", can also be strings.
    """
    if hasattr(x, "detach"):  # a torch tensor
        x = x.detach().cpu()
    if name == "x" and type(x) is PreparedStrings:
        return x
    array = as_array(x.numpy() if isinstance(x, (Tensor, Variable)) else x)
    if name == "x" and is_strings(array):
        return array
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise DTypeError(
            f"{name}: expected numbers; received data of dtype {array.dtype}"
            f"{_fix_of_objects(array)}"
        )
    return array


def _fix_of_objects(array: Array) -> str:
    """Return the first element that is not a number, and the likely fix."""
    if array.dtype.kind in "SU":
        return (
            "; map strings to integers, for example by layers.StringLookup or "
            "np.unique(y, return_inverse=True)"
        )
    if array.dtype.kind in "Mm":
        return "; convert times to numbers, for example by .astype('int64')"
    for index, value in np.ndenumerate(array):
        if hasattr(value, "flat_map"):
            return (
                ", because each element of the data set is a data set, for example "
                "from window; combine them to arrays: after window(n), call "
                ".flat_map(lambda w: w.batch(n))"
            )
        if np.ndim(value):
            return (
                f"; row {index[0]} has the length {len(value)}: rows of different "
                "lengths need padding, for example by toolkit.utils.pad_sequences"
            )
        if not is_real(value):
            position = index[0] if len(index) == 1 else index
            return (
                f", with {value!r:.40} of type {type(value).__name__} at index "
                f"{position}; replace it by a number, then convert by "
                ".astype('float32'), or by a text, if the model has an input of texts"
            )
    return "; convert it by .astype('float32')"


def to_floatx(array: Array) -> Array:
    """Convert other float dtypes to floatx, the dtype of models."""
    floatx = dtypes.numpy_dtype(settings.floatx())
    if array.dtype.kind != "f" or array.dtype == floatx:
        return array
    return array.astype(floatx)


def as_tensor(array: Array) -> Any:
    """Return a tensor that shares the array's memory; strings stay arrays."""
    if is_strings(array):
        return array
    return Tensor(backend().memory.asarray(array))


def batch_tensors(structure: Any, name: str) -> Any:
    """Return a nest of arrays as tensors that share their memory; None stays None."""

    def convert(leaf: Any) -> Any:
        if leaf is None or isinstance(leaf, Tensor):
            return leaf
        if isinstance(leaf, LocalRows):
            raise ArgumentError(
                f"{name}: expected all rows of a batch; received the {len(leaf)} rows "
                "of this process; pass elements of the data set itself, or the result "
                "of `distribute_dataset` without a change"
            )
        if isinstance(leaf, Ragged):
            leaf = make_ragged(leaf.values, np.asarray(leaf.row_splits))
        if isinstance(leaf, Composite):
            return leaf.as_batch()
        array = to_floatx(to_array(leaf, name))
        if array.ndim == 0:
            raise ShapeError(
                f"{name}: expected batches of samples; received a scalar; if the data "
                "set returns single samples, add .batch(32) to it"
            )
        return as_tensor(array)

    return tree.map_structure(convert, structure)


def mark_strings(structure: object) -> object:
    """Return the strings of a nest of arrays as PreparedStrings."""

    def mark(leaf: object) -> object:
        if type(leaf) is np.ndarray and is_strings(leaf):
            return leaf.view(PreparedStrings)
        return leaf

    marked: object = tree.map_structure(mark, structure)
    return marked


def check_arrays(structure: Any, name: str) -> Any:
    """Check that a structure is a nest of arrays, and return it; None stays None."""

    def convert(leaf: Any) -> Any:
        if leaf is None:
            return None
        if not is_array(leaf):
            raise ArgumentError(
                f"{name}: expected an array, or a list, tuple or dict of arrays; "
                f"received {_describe_list(structure, leaf, name)}"
            )
        array = to_array(leaf, name)
        if array.ndim == 0:
            raise ShapeError(
                f"{name}: expected arrays of samples; received "
                f"{_describe_list(structure, leaf, name)}"
            )
        return array

    return tree.map_structure(convert, structure)


def _describe_list(structure: Any, leaf: Any, name: str) -> str:
    """Describe data that is no nest of arrays, and the likely fix."""
    if structure is leaf and is_array(leaf):
        return "a scalar; use np.array([...]) with one element for each sample"
    if isinstance(structure, dict):
        for key, value in structure.items():
            if any(x is leaf for x in tree.flatten(value)):
                part = f"{name}[{key!r}]"
                return f"{part}, {_describe_list(value, leaf, part)}"
    is_text = isinstance(leaf, (str, bytes))
    if structure is leaf and (is_real(leaf) or is_text):
        return f"{leaf!r:.60} of type {type(leaf).__name__}; use np.array([...])"
    if not isinstance(structure, (list, tuple)) or not (is_real(leaf) or is_text):
        return f"{leaf!r:.60} of type {type(leaf).__name__}"
    kind = type(structure).__name__
    lengths = {len(x) for x in structure if isinstance(x, (list, tuple))}
    if not lengths:
        is_sample = name == "x" and not is_text
        sample = ", or np.array([x]) if it is one sample" if is_sample else ""
        elements = "texts" if is_text else "numbers"
        return (
            f"a {kind} of {len(structure)} {elements}; convert it by np.array({name})"
            f"{sample}"
        )
    if len(lengths) == 1:
        return f"a {kind} of {len(structure)} lists; convert it by np.array({name})"
    shortest, longest = min(lengths), max(lengths)
    return (
        f"a {kind} of {len(structure)} lists with lengths from {shortest} to "
        f"{longest}; pad them to one length by toolkit.utils.pad_sequences({name})"
    )


def count_samples(components: dict[str, Any]) -> int:
    """Return the number of samples, which must be equal for all arrays."""
    lengths = {
        name: [len(a) for a in tree.flatten(array) if a is not None]
        for name, array in components.items()
    }
    distinct = {n for array in lengths.values() for n in array}
    # A model can accept inputs that are all None, if some are optional.
    if not distinct or components["x"] is None or not tree.flatten(components["x"]):
        raise ArgumentError("expected data `x`; received no arrays")
    if len(distinct) > 1:
        sizes = "; ".join(f"{k}: {_only(v)}" for k, v in lengths.items() if v)
        raise ShapeError(
            f"expected the same number of samples in all arrays; received {sizes}"
        )
    return distinct.pop()


def _only(values: list[int]) -> Any:
    return values[0] if len(values) == 1 else values


def repeat_weights(weights: Array, y: Any) -> Any:
    """Repeat an array of sample weights for each of several outputs."""
    if weights.ndim > 1 and weights.shape[1:] != (1,):
        raise ShapeError(
            "sample_weight: expected one weight per sample, shape (samples,), or one "
            f"array per output; received the shape {weights.shape}"
        )
    return tree.map_structure(lambda _: weights, y)


def weights_of_classes(y: Any, weights: Any, class_weight: dict[int, float]) -> Any:
    """Return sample weights from the class weights of the samples."""
    if weights is not None:
        raise ArgumentError("expected class_weight or sample_weight; received both")
    if y is None or tree.is_nested(y):
        raise ArgumentError(
            "class_weight: expected targets `y` of a single output; received "
            f"{'None' if y is None else 'several'}"
        )
    labels = _labels(y)
    if labels.ndim != 1:
        raise ShapeError(
            "class_weight: expected one label per sample; received labels of shape "
            f"{np.shape(y)}"
        )
    classes, positions = np.unique(labels, return_inverse=True)
    values = [class_weight.get(int(c), 1.0) for c in classes]
    return np.array(values, dtypes.numpy_dtype(settings.floatx()))[positions]


def _labels(y: Any) -> Array:
    """Return the class of each sample, from one-hot codes or rounded numbers."""
    labels = np.asarray(y)
    if labels.ndim > 1:
        one_hot = labels.shape[-1] != 1
        labels = labels.argmax(-1) if one_hot else labels[..., 0]
    return np.round(labels).astype("int64")


def check_class_weight(class_weight: Any) -> None:
    """Raise unless the argument maps integer classes to finite weights."""
    for key, weight in (class_weight or {}).items():
        if not is_real(key) or key % 1 != 0:
            raise ArgumentError(
                "class_weight: expected classes, whole numbers, as keys; received "
                f"{key!r} of type {type(key).__name__}"
            )
        if not np.all(np.isfinite(np.asarray(weight, float))):
            raise ArgumentError(
                f"class_weight: expected a finite weight of class {key}; received "
                f"{weight!r}"
            )


def warn_of_absent_classes(y: Any, class_weight: dict[int, float]) -> None:
    """Warn about weights for classes without a sample."""
    absent = sorted(set(map(int, class_weight)) - set(np.unique(_labels(y)).tolist()))
    if absent:
        warn(
            f"class_weight: weights are defined for the classes {absent}, but no "
            "sample has these classes"
        )


def split_arrays(
    x: Any, y: Any, sample_weight: Any, validation_split: float
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Split off the last `validation_split` of the samples for validation."""
    if not 0 < validation_split < 1:
        raise ArgumentError(
            f"expected 0 < validation_split < 1; received {validation_split}"
        )
    if not _all_arrays((x, y, sample_weight)):
        raise ArgumentError(
            f"validation_split supports only arrays; received x of type "
            f"{type(x).__name__}. Split a data set by `toolkit.utils.split_dataset("
            f"x, right_size={validation_split})`, and pass the second part as "
            "validation_data"
        )
    pairs = zip(FIELDS, (x, y, sample_weight), strict=True)
    components = {name: check_arrays(array, name) for name, array in pairs}
    samples = count_samples(components)
    at = int(samples * (1.0 - validation_split))
    if at in (0, samples):
        raise ArgumentError(
            f"{samples} samples cannot be split into training and validation by "
            f"validation_split={validation_split}: {at} and {samples - at} samples; "
            "pass more samples, or validation_data"
        )

    def cut(rows: slice) -> Any:
        return tuple(
            tree.map_structure(lambda a: None if a is None else a[rows], array)
            for array in components.values()
        )

    return cut(slice(None, at)), cut(slice(at, None))


def _all_arrays(structure: Any) -> bool:
    return all(leaf is None or is_array(leaf) for leaf in tree.flatten(structure))


def checksum_of(rows: Rows) -> int:
    """Return a checksum of rows at equal distances; of large rows, fewer."""
    size = sum(np.asarray(x).nbytes for x in tree.flatten(rows[0]))
    count = max(2, min(_LOOKED_AT, _LOOKED_AT_BYTES // max(1, size)))
    some = np.unique(np.linspace(0, len(rows) - 1, count, dtype=np.int64))
    sizes = 0
    for array in map(np.asarray, tree.flatten(rows.stacked(some))):
        data = repr(array.tolist()).encode() if array.dtype == object else array
        sizes = crc32(np.ascontiguousarray(data).tobytes(), sizes)
    return sizes
