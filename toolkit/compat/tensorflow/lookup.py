"""`tf.lookup`: immutable tables from keys to values."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import as_array, dtype_name
from toolkit.compat.tensorflow.arrays import convert_to_tensor
from toolkit.compat.tensorflow.io import to_path
from toolkit.compat.tensorflow.modes import NeedsValues
from toolkit.compat.tensorflow.string_tensors import StringTensor, to_bytes_array
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, DTypeError
from toolkit.layers.preprocessing.string_hashes import farm_hash
from toolkit.reading.text import parse_number
from toolkit.type_aliases import Array, DTypeLike, TensorLike

__all__ = [
    *("KeyValueTensorInitializer", "StaticHashTable", "StaticVocabularyTable"),
    *("TextFileIndex", "TextFileInitializer"),
]


class KeyValueTensorInitializer:
    """The content of a table: keys, and one value per key.

    Args:
        keys: strings or integers.
        values: one per key, of any dtype.
        key_dtype, value_dtype: the dtypes; None keeps the dtypes of keys and values.
        name: has no effect.

    Raises:
        ArgumentError: the numbers of keys and values differ, or a key has several
            values.
    """

    def __init__(
        self,
        keys: Any,
        values: Any,
        key_dtype: Any = None,
        value_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        self.keys = _to_array(convert_to_tensor(keys, key_dtype)).ravel()
        self.values = _to_array(convert_to_tensor(values, value_dtype)).ravel()
        if len(self.keys) != len(self.values):
            raise ArgumentError(
                f"lookup: expected a value for each key; received {len(self.keys)} "
                f"keys and {len(self.values)} values"
            )
        values_by_key: dict[Any, Any] = {}
        for key, value in zip(self.keys.tolist(), self.values.tolist(), strict=True):
            if values_by_key.setdefault(key, value) != value:
                raise ArgumentError(f"lookup: the key {key!r} has several values")

    @property
    def key_dtype(self) -> str:
        """Return the dtype of keys."""
        return _dtype_of(self.keys)

    @property
    def value_dtype(self) -> str:
        """Return the dtype of values."""
        return _dtype_of(self.values)


class TextFileIndex:
    """The key or value of a line if it is not a column."""

    WHOLE_LINE = -2
    LINE_NUMBER = -1


class TextFileInitializer(KeyValueTensorInitializer):
    """The content of a table, from the lines of a text file.

    Args:
        filename: of the file.
        key_dtype, value_dtype: strings, or numbers as decimal text.
        key_index, value_index: a column, or a `TextFileIndex`.
        vocab_size: the required number of lines; None: any number.
        delimiter: the separator of columns.
        name: has no effect.
        value_index_offset: added to line numbers.

    Raises:
        ArgumentError: the file has another number of lines or columns.
    """

    def __init__(
        self,
        filename: str,
        key_dtype: Any,
        key_index: int,
        value_dtype: Any,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        with open(to_path(filename), "rb") as file:
            lines = file.read().splitlines()
        if vocab_size is not None and len(lines) != vocab_size:
            raise ArgumentError(
                f"lookup: expected {vocab_size} lines in {filename}; received "
                f"{len(lines)}"
            )
        keys = _parse_column(lines, key_index, key_dtype, delimiter, 0)
        values = _parse_column(
            lines, value_index, value_dtype, delimiter, value_index_offset
        )
        super().__init__(keys, values, key_dtype, value_dtype)


def _parse_column(
    lines: list[bytes], index: int, dtype: DTypeLike, delimiter: str, offset: int
) -> list[Any]:
    """Return a column, the lines or the line numbers, as strings or as numbers."""
    if index == TextFileIndex.LINE_NUMBER:
        return [number + offset for number in range(len(lines))]
    fields: list[Any] = lines
    if index != TextFileIndex.WHOLE_LINE:
        rows = [line.split(delimiter.encode()) for line in lines]
        short = next((i for i, row in enumerate(rows) if len(row) <= index), None)
        if short is not None:
            raise ArgumentError(
                f"lookup: expected more than {index} columns; line {short} has "
                f"{len(rows[short])}"
            )
        fields = [row[index] for row in rows]
    if dtype_name(dtype) == dtypes.STRING:
        return fields
    number = float if dtypes.is_float(str(dtype_name(dtype))) else int
    try:
        return [parse_number(number, text) for text in fields]
    except (ValueError, OverflowError) as error:
        raise ArgumentError(f"lookup: a file of numbers: {error}") from None


class _Table:
    """Base of tables: the slots of keys, and the values of slots."""

    def __init__(self, initializer: Any, name: Any) -> None:
        self.name = name or "table"
        keys = np.zeros(0, object) if initializer is None else initializer.keys
        self._is_of_strings = keys.dtype == object
        if self._is_of_strings:
            self._slots = {key: slot for slot, key in enumerate(keys.tolist())}
            self._count = len(self._slots)
            return
        self._sorted, first = np.unique(keys.astype("int64"), return_index=True)
        self._first, self._count = first.astype("int64"), len(self._sorted)

    def size(self, name: str | None = None) -> Any:
        """Return the number of keys."""
        return convert_to_tensor(self._count, "int64")

    def __getitem__(self, keys: TensorLike) -> Any:
        return self.lookup(keys)

    def lookup(self, keys: TensorLike, name: str | None = None) -> Any:
        """Return the values of keys; a subclass defines it."""
        raise NotImplementedError

    def _find_slots(self, keys: Any, default_slot: int) -> Tensor:
        """Return the slot of each key in the initializer, or `missing`."""
        keys = convert_to_tensor(keys)
        is_string = isinstance(keys, StringTensor)
        if is_string != self._is_of_strings:
            kinds = ("integers", "strings") if is_string else ("strings", "integers")
            raise DTypeError(
                f"{self.name}: expected keys that are {kinds[0]}; received {kinds[1]}"
            )
        if is_string:
            flat = [self._slots.get(key, default_slot) for key in _to_array(keys).flat]
            return ops.reshape(ops.convert_to_tensor(flat, "int64"), tuple(keys.shape))
        if not self._count:
            return ops.full(tuple(keys.shape), default_slot, "int64")
        keys, sorted_keys = ops.cast(keys, "int64"), ops.convert_to_tensor(self._sorted)
        near = ops.minimum(ops.searchsorted(sorted_keys, keys), self._count - 1)
        slots = ops.take(ops.convert_to_tensor(self._first), near)
        return ops.where(
            ops.equal(ops.take(sorted_keys, near), keys), slots, default_slot
        )


class StaticHashTable(_Table):
    """A table from keys to values, with a default value for other keys.

    Args:
        initializer: its content.
        default_value: for missing keys.
        name: its name in errors.
        experimental_is_anonymous: has no effect.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> contents = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
        >>> table = tf.lookup.StaticHashTable(contents, default_value=-1)
        >>> table.lookup(tf.constant(["b", "z"])).numpy().tolist()
        [2, -1]
    """

    def __init__(
        self,
        initializer: Any,
        default_value: Any,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        super().__init__(initializer, name or "hash_table")
        self.key_dtype: str = initializer.key_dtype
        self.value_dtype: str = initializer.value_dtype
        self.default_value = convert_to_tensor(default_value, self.value_dtype)
        self._initializer = initializer
        self._values = np.append(initializer.values, _to_array(self.default_value))

    def lookup(self, keys: TensorLike, name: str | None = None) -> Any:
        """Return the value of each key, in the shape of the keys.

        Raises:
            DTypeError: the keys are strings and the table's keys are integers, or vice
                versa.
        """
        slots = self._find_slots(keys, len(self._values) - 1)
        if self.value_dtype != dtypes.STRING:
            return convert_to_tensor(
                ops.take(ops.convert_to_tensor(self._values), slots)
            )
        if slots.static_value() is None:
            raise NeedsValues("a lookup of strings")
        return StringTensor(self._values[np.asarray(slots)])

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """Return all keys, and their values."""
        return (
            convert_to_tensor(self._initializer.keys),
            convert_to_tensor(self._initializer.values),
        )


class StaticVocabularyTable(_Table):
    """A table from words to indices, with hash buckets for other words.

    Args:
        initializer: from words to 0, 1, ..., n - 1; None: there are no words.
        num_oov_buckets: the number of buckets; their indices start at n.
        lookup_key_dtype: has no effect: the initializer has the dtype, else strings.
        name: its name in errors.
        experimental_is_anonymous: has no effect.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> contents = tf.lookup.KeyValueTensorInitializer(["a", "b"], [0, 1], None,
        ...     tf.int64)
        >>> table = tf.lookup.StaticVocabularyTable(contents, num_oov_buckets=3)
        >>> table.lookup(tf.constant(["b", "z"])).numpy().tolist()
        [1, 3]
    """

    def __init__(
        self,
        initializer: Any,
        num_oov_buckets: int,
        lookup_key_dtype: Any = None,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        if num_oov_buckets < 1:
            raise ArgumentError(
                "StaticVocabularyTable: expected num_oov_buckets >= 1; received "
                f"{num_oov_buckets}"
            )
        super().__init__(initializer, name or "vocabulary")
        self._buckets = num_oov_buckets
        values = [] if initializer is None else initializer.values.tolist()
        if sorted(values) != list(range(len(values))):
            raise ArgumentError(
                "StaticVocabularyTable: expected the values 0, 1, ..., n - 1; received "
                f"{values[:5]}"
            )
        self._values = np.array([*values, -1], "int64")

    def size(self, name: str | None = None) -> Any:
        """Return the number of indices, buckets included."""
        return convert_to_tensor(self._count + self._buckets, "int64")

    def lookup(self, keys: TensorLike, name: str | None = None) -> Any:
        """Return the index of each word, in the shape of the words; int64."""
        keys = convert_to_tensor(keys)
        slots = self._find_slots(keys, self._count)
        indices = ops.take(ops.convert_to_tensor(self._values), slots)
        if isinstance(keys, Tensor) and keys.static_value() is None:
            raise NeedsValues("a lookup in a vocabulary")
        words = [w if isinstance(w, bytes) else b"%d" % w for w in _to_array(keys).flat]
        bucket_indices = [
            self._count + farm_hash(word) % self._buckets for word in words
        ]
        other = ops.reshape(
            ops.convert_to_tensor(bucket_indices, "int64"), indices.shape
        )
        return convert_to_tensor(ops.where(ops.equal(indices, -1), other, indices))


def _to_array(x: TensorLike) -> Array:
    """Convert a tensor to an array; strings are bytes."""
    if isinstance(x, StringTensor):
        return to_bytes_array(x)
    return np.asarray(as_array(x.value if isinstance(x, Variable) else x))


def _dtype_of(array: Array) -> str:
    return dtypes.STRING if array.dtype == object else dtypes.name_of(array.dtype)
