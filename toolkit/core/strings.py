"""Strings as values on the host: operations only move them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from toolkit import tree
from toolkit.core.tensor import Tensor
from toolkit.errors import DTypeError
from toolkit.type_aliases import Array

# Operations that only move elements.
MOVE_OPERATIONS = frozenset(
    (
        *("append", "array_split", "broadcast_to", "concatenate", "copy", "diagonal"),
        *("dsplit", "dstack", "expand_dims", "flip", "fliplr", "flipud", "hsplit"),
        *("hstack", "moveaxis", "ravel", "repeat", "reshape", "roll", "rot90", "split"),
        *("squeeze", "stack", "swapaxes", "take", "take_along_axis", "tile"),
        *("transpose", "unstack", "vsplit", "vstack", "where"),
    )
)


class StringTensor:
    """Strings, stored as bytes, with the interface of a tensor.

    Layers such as StringLookup and TextVectorization accept them, and so do operations
    that only move elements, such as `reshape`, `concatenate` and `take`.

    Args:
        values: a string, bytes, or nested lists or an array of them.

    Example:
        >>> import toolkit
        >>> words = toolkit.ops.convert_to_tensor(["a", "b"])
        >>> toolkit.ops.expand_dims(words, 1).shape, words.numpy().tolist()
        ((2, 1), [b'a', b'b'])
    """

    dtype: Any = "string"
    is_traced = False  # whether they are a symbol in a trace

    def __init__(self, values: Any) -> None:
        encode = np.frompyfunc(_encode_item, 1, 1)
        array = as_array(values).astype(object, copy=False)
        self._array = np.asarray(encode(array), object)

    @property
    def shape(self) -> Any:
        return self._array.shape

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        return self._array.size

    def numpy(self) -> Any:
        """Return an array of bytes, or the bytes of a single string."""
        return self._array[()]

    def tolist(self) -> Any:
        """Return the bytes as nested lists."""
        return self._array.tolist()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._array if dtype is None else self._array.astype(dtype)

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, key: Any) -> Any:
        return type(self)(self._array[key])

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __add__(self, other: Any) -> Any:
        return type(self)(self._array + self._of(other))

    def __eq__(self, other: object) -> Any:
        return Tensor(np.asarray(np.equal(self._array, self._of(other)), bool))

    def _of(self, other: Any) -> Any:
        return np.asarray(StringTensor(other))

    __hash__: ClassVar[Callable[[Any], int]] = object.__hash__

    def move(
        self, function: Callable[..., object], args: object, kwargs: object
    ) -> object:
        """Record an operation that moves elements, in a trace."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<StringTensor shape={self.shape}, value={self.numpy()!r}>"


def encode_text(text: str) -> bytes:
    """Encode a text as UTF-8; restore bytes that are not valid UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def decode_bytes(data: bytes, encoding: str = "utf-8") -> str:
    """Decode bytes to text; bytes that are not valid are preserved.

    Each invalid byte becomes a surrogate, which `encoded` maps back to the byte.
    """
    return data.decode(encoding, "surrogateescape")


def _encode_item(value: Any) -> bytes:
    if isinstance(value, str):
        return encode_text(value)
    if isinstance(value, bytes):
        return bytes(value)
    raise DTypeError(f"strings: expected str or bytes; received {value!r}")


def is_string(value: object) -> bool:
    """Return whether a value is a string, or an array or nested lists of strings."""
    if isinstance(value, (str, bytes, StringTensor)):
        return True
    if isinstance(value, np.ndarray):
        first = value.flat[0] if value.dtype.kind == "O" and value.size else None
        return value.dtype.kind in "SU" or isinstance(first, (str, bytes))
    return isinstance(value, (list, tuple)) and bool(value) and is_string(value[0])


def as_array(x: Any) -> Array:
    """Return `x` as a NumPy array; a string, or strings in lists, as objects.

    In a NumPy string array, each element takes the memory of the longest one, bytes
    lose trailing zeros, and numbers in the same list become strings.

    Raises:
        ValueError: lists of different lengths.
    """
    if not isinstance(x, (list, tuple, str, bytes)):
        return np.asarray(x)
    if not is_string(x):
        array = np.asarray(x)
        if array.dtype.kind not in "SU":
            return array
    array = np.asarray(x, object)
    if _NESTS & set(map(type, array.reshape(-1).tolist())):
        raise ValueError("expected rows of equal length")
    return array


_NESTS = {list, tuple, np.ndarray}


def apply_to_strings(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Apply an operation to strings if it only moves elements; else return None.

    The operation moves the indices of the strings, and the strings are gathered by
    them.
    """
    leaves = tree.flatten((args, kwargs))
    if function.__name__ not in MOVE_OPERATIONS or not any(map(is_string, leaves)):
        return None
    tensors = [x for x in leaves if isinstance(x, StringTensor)]
    for traced in (x for x in tensors if x.is_traced):
        return traced.move(function, args, kwargs)
    kind = next(map(type, tensors), StringTensor)
    return apply_by_index(function, args, kwargs, kind)


def apply_by_index(
    function: Callable[..., Any], args: Any, kwargs: Any, kind: type[StringTensor]
) -> Any:
    """Apply a function that only moves elements to strings; return `kind` tensors.

    Args:
        function: receives indices instead of strings.
        args: arguments of a call, with strings in them.
        kwargs: keyword arguments of the call.
        kind: the class of the tensors that are returned.
    """
    pool: list[Any] = []

    def positions(leaf: Any) -> Any:
        if not is_string(leaf):
            return leaf
        array = np.asarray(kind(leaf))
        first = len(pool)
        pool.extend(array.reshape(-1))
        return np.arange(first, len(pool)).reshape(array.shape)

    args, kwargs = tree.map_structure(positions, (args, kwargs))
    strings = np.empty(len(pool), object)
    strings[:] = pool

    def look_up(index: Tensor) -> Any:
        indices = index.static_value()
        if indices is None:
            raise DTypeError(
                f"{function.__name__}: a traced function cannot select strings by "
                "unknown positions"
            )
        return kind(strings[indices])

    return tree.map_structure(look_up, function(*args, **kwargs))
