"""Hashing and HashedCrossing: categories without a vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from toolkit import settings
from toolkit.arguments import is_int
from toolkit.core.strings import encode_text
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ArgumentTypeError, DTypeError
from toolkit.layers.preprocessing.encoding import (
    MODES,
    checked_mode,
    encode,
    encoded_shape,
)
from toolkit.layers.preprocessing.host import (
    HostLayer,
    host_array,
    refuse_sparse,
)
from toolkit.layers.preprocessing.string_hashes import farm_hash, join, sip_hash
from toolkit.ops.symbolic import KerasTensor
from toolkit.type_aliases import (
    Array,
    BasicLayerOptions,
    PolicyLike,
    RegularizedLayerOptions,
    Shape,
)

# The initial fingerprint of crossings, as in TensorFlow's sparse.cross_hashed.
_CROSSING = 0xDECAFCAFFE


def checked_salt(layer: Any, salt: Any) -> list[int] | None:
    """Return a salt as two integers."""
    if salt is None:
        return None
    if is_int(salt):
        return [int(salt)] * 2
    if isinstance(salt, (tuple, list)) and len(salt) == 2:
        return list(map(int, salt))
    raise ArgumentError(
        f"{type(layer).__name__}: the salt can only be a tuple of size 2 (of "
        f"integers) or one integer; received {salt!r}"
    )


def as_strings(values: Array) -> Array:
    """Return values as strings: truncated decimal floats, "true" and "false"."""
    if values.dtype.kind == "O":
        return values
    if values.dtype.kind == "b":
        return np.where(values, "true", "false").astype(object)
    if values.dtype.kind == "f":
        values = values.astype("int64")
    return np.array([str(v) for v in values.reshape(-1).tolist()], object).reshape(
        values.shape
    )


def hash_bins(values: Array, num_bins: int, salt: Any = None) -> Array:
    """Return the bin of each value: FarmHash, or with a salt SipHash, modulo bins."""
    if salt is None:
        return _map_unique(
            as_strings(values), lambda s: farm_hash(encode_text(s)) % num_bins
        )
    key = (salt[0], salt[1])
    return _map_unique(
        as_strings(values), lambda s: sip_hash(encode_text(s), key) % num_bins
    )


def _map_unique(values: Array, function: Callable[[Any], int]) -> Array:
    """Return int64 `function(value)` of each; equal values are computed once."""
    flat = values.reshape(-1).tolist()
    results = {value: function(value) for value in set(flat)}
    return np.array([results[v] for v in flat], "int64").reshape(values.shape)


def _words(values: Array) -> list[int]:
    """Return a 64-bit word per value: a string's FarmHash, or the integer."""
    flat = values.reshape(-1).tolist()
    if values.dtype.kind == "O":
        return [farm_hash(encode_text(v)) for v in flat]
    return [int(v) % 2**64 for v in flat]


class Hashing(HostLayer):
    """Layer that hashes each value to a bin, without a vocabulary.

    The bins equal Keras's: FarmHash64, or SipHash-2-4 with a salt.

    Args:
        num_bins: the number of bins; the first is for `mask_value` if it is given.
        mask_value: a value that maps to bin 0, which no other value uses.
        salt: one or two integers: a key for SipHash.
        output_mode: "int": the bins; "one_hot", "multi_hot", "count": as in
            CategoryEncoding.
        sparse: must be False: sparse tensors are not supported.

    Call arguments:
        inputs: strings, or numbers, which are hashed as decimal strings.

    Example:
        >>> import toolkit
        >>> toolkit.layers.Hashing(3)([["A"], ["B"], ["C"]]).tolist()
        [[1], [0], [1]]
    """

    def __init__(
        self,
        num_bins: int,
        mask_value: Any = None,
        salt: Any = None,
        output_mode: str = "int",
        sparse: bool = False,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = "int64" if output_mode == "int" else settings.floatx()
        super().__init__(**kwargs)
        if num_bins is None or num_bins <= 0:
            raise ArgumentError(
                "Hashing: The `num_bins` for `Hashing` cannot be `None` or "
                f"non-positive values. Received: num_bins={num_bins}"
            )
        self.output_mode: str = checked_mode(self, output_mode)
        refuse_sparse(self, sparse)
        if output_mode == "int" and self.compute_dtype not in ("int32", "int64"):
            raise ArgumentError(
                'Hashing: When `output_mode="int"`, `dtype` should be an integer type, '
                f"int32 or int64; received {self.compute_dtype}"
            )
        self.num_bins: int = int(num_bins)
        self.mask_value = mask_value
        self.salt: list[int] | None = checked_salt(self, salt)
        self.sparse = False

    def call(self, inputs: Any) -> Tensor:
        inputs, bins = self._arrays(inputs), self.num_bins
        masked = self.mask_value is not None and bins > 1
        indices = hash_bins(inputs, bins - masked, self.salt)
        if masked:
            self._check_mask(inputs)
            indices = np.where(inputs == self.mask_value, 0, indices + 1)
        return encode(indices, self.output_mode, bins, self.compute_dtype)

    def _check_mask(self, inputs: Array) -> None:
        of_text = inputs.dtype.kind == "O"
        if inputs.size and of_text != isinstance(self.mask_value, (str, bytes)):
            raise ArgumentTypeError(
                f"Hashing {self.name!r}: expected inputs with the type of "
                f"mask_value={self.mask_value!r}; received "
                f"{('strings' if of_text else inputs.dtype)}"
            )

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return encoded_shape(input_shape, self.output_mode, self.num_bins)

    def compute_output_spec(self, inputs: Any) -> Any:
        return KerasTensor(self.compute_output_shape(inputs.shape), self.compute_dtype)


class HashedCrossing(HostLayer):
    """Layer that hashes each combination of values to a bin.

    Args:
        num_bins: the number of bins.
        output_mode: "int" or "one_hot".
        sparse: must be False: sparse tensors are not supported.
        name: the name; generated from the class name if None.
        dtype: the dtype of the results, or a policy; None for the global policy.

    Call arguments:
        inputs: two or more arrays of strings or integers of the same shape, (),
            (batch,) or (batch, 1).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.HashedCrossing(5)
        >>> layer((["A", "B", "A"], [101, 101, 101])).tolist()
        [1, 4, 1]
    """

    def __init__(
        self,
        num_bins: int,
        output_mode: str = "int",
        sparse: bool = False,
        name: str | None = None,
        dtype: PolicyLike | None = None,
        **kwargs: Unpack[BasicLayerOptions],
    ) -> None:
        if dtype is None and output_mode == "int":
            dtype = "int64"
        super().__init__(name=name, dtype=dtype, **kwargs)
        refuse_sparse(self, sparse)
        self.num_bins = num_bins
        self.output_mode: str = checked_mode(self, output_mode, MODES[:2])
        self.sparse = False

    def _arrays(self, inputs: Any) -> Any:
        if not isinstance(inputs, (list, tuple)) or len(inputs) < 2:
            raise ArgumentError(
                "HashedCrossing: expected a list or tuple of at least two inputs; "
                f"received {inputs!r}"
            )
        return tuple(host_array(self, x) for x in inputs)

    def call(self, inputs: Any) -> Tensor:
        inputs = self._arrays(inputs)
        self._check(inputs)
        rows = zip(*map(_words, inputs), strict=True)
        bins = [self._bin(row) for row in rows]
        indices = np.array(bins, "int64").reshape(inputs[0].shape)
        return encode(indices, self.output_mode, self.num_bins, self.compute_dtype)

    def _bin(self, words: tuple[int, ...]) -> int:
        result = _CROSSING
        for word in words:
            result = join(result, word)
        return result % self.num_bins

    def _check(self, inputs: Any) -> None:
        shapes = {tuple(x.shape) for x in inputs}
        shape = tuple(inputs[0].shape)
        if len(shape) > 2 or (len(shape) == 2 and shape[1] != 1):
            raise ArgumentError(
                "HashedCrossing: inputs should have shape (), (batch_size,) or "
                f"(batch_size, 1); received {shape}"
            )
        if len(shapes) > 1:
            raise ArgumentError(
                f"HashedCrossing: inputs should have equal shape; received {shapes}"
            )
        kinds = {str(x.dtype) for x in inputs if x.dtype.kind not in "iuOSU"}
        if kinds - {"string"}:
            raise DTypeError(
                "HashedCrossing: inputs should have an integer or string dtype; "
                f"received {kinds}"
            )

    def compute_output_shape(self, input_shape: Any) -> Any:
        return encoded_shape(input_shape[0], self.output_mode, self.num_bins)

    def compute_output_spec(self, inputs: Any) -> Any:
        shape = self.compute_output_shape([x.shape for x in inputs])
        return KerasTensor(shape, self.compute_dtype)
