"""Dtypes of a layer's computation and of its weights."""

from __future__ import annotations

from typing import Any, NoReturn

from toolkit import dtype_policies, dtypes
from toolkit.dtype_policies import DTypePolicy, DTypePolicyMap
from toolkit.errors import ArgumentError, UnsupportedError, unknown_choice

# Quantization modes of Keras's layers; our layers reject most of them.
_MODES = ("awq", "float8", "gptq", "int4", "int8")


class Precision:
    """Base class of layers: a dtype policy. Most layers reject a quantized policy."""

    name: str
    autocast: bool
    _path: str | None = None
    _autocast_dtype: str | None
    _dtype_policy: DTypePolicy
    # Whether to cast floating inputs to the compute dtype, if enabled. It is False for
    # indices and counts, which 16 bits cannot represent exactly.
    _casts_inputs: bool = True
    _input_dtype: str | None = None  # the dtype of floating inputs; None: no cast
    _modes: tuple[str, ...] = ()
    _policy_map: DTypePolicyMap | None = None

    @property
    def dtype_policy(self) -> DTypePolicy:
        """Return the dtypes of computation and weights; settable."""
        if self._policy_map is not None:
            return self._policy_map
        return self._dtype_policy

    @dtype_policy.setter
    def dtype_policy(self, value: Any) -> None:
        policy, policy_map = dtype_policies.get(value), self._policy_map
        if isinstance(policy, DTypePolicyMap):
            self._use_policy(self._policy_in(policy))
            self._policy_map = policy
            return
        self._use_policy(policy)
        if policy_map is None or self._path is None:
            self._policy_map = None
        else:  # keep the map, with another policy for this layer
            if self._path in list(policy_map):
                del policy_map[self._path]
            policy_map[self._path] = policy

    def _policy_in(self, policies: DTypePolicyMap) -> DTypePolicy:
        """Return a map's policy for this layer, if the layer already has a path."""
        return policies if self._path is None else policies[self._path]

    def _use_policy(self, policy: DTypePolicy) -> None:
        """Compute in the dtypes of `policy`."""
        if policy.quantization_mode is not None:
            self._accept_quantized(policy)
        self._dtype_policy = policy
        compute = policy.compute_dtype
        is_float = dtypes.is_float(compute)
        casts = is_float and self.autocast and self._casts_inputs
        self._input_dtype = compute if casts else None
        mixed = is_float and compute != policy.variable_dtype
        self._autocast_dtype = compute if mixed else None

    @property
    def compute_dtype(self) -> str:
        """Return the dtype of the computation."""
        return self._dtype_policy.compute_dtype

    @property
    def variable_dtype(self) -> str:
        """Return the dtype of the weights."""
        return self._dtype_policy.variable_dtype

    dtype = variable_dtype

    @property
    def input_dtype(self) -> str:
        """Return the dtype of floating inputs."""
        return self.compute_dtype

    # --- quantization -----------------------------------------------------------------

    @property
    def quantization_mode(self) -> str | None:
        """Return the quantization mode of the weights; None if they are floating."""
        return self._dtype_policy.quantization_mode

    def _accept_quantized(self, policy: Any) -> None:
        """Raise for a quantized policy."""
        raise ArgumentError(
            f"{type(self).__name__}: the layer does not support this quantization of "
            f"weights; received the policy {policy!r}"
        )

    def quantize(self, mode: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Raise: only Dense, EinsumDense and Embedding support quantization.

        Args:
            mode: a quantization mode.

        Raises:
            UnsupportedError: always, or ArgumentError for a mode that Keras does not
                have.
        """
        if mode is not None and mode not in _MODES:
            raise unknown_choice("quantize: Invalid quantization mode", mode, _MODES)
        raise UnsupportedError(
            f"{type(self).__name__} {self.name!r}: quantize(mode={mode!r}) is not "
            "supported; supported are Dense, EinsumDense and Embedding layers, and "
            "convolutions by `Model.quantize` with data"
        )

    def _refuse_mode(self, mode: str) -> NoReturn:
        raise UnsupportedError(
            f"{type(self).__name__} {self.name!r}: quantize(mode={mode!r}) is not "
            f"supported; expected one of {self._modes}"
        )

    quantized_build: Any = quantize
    quantized_call: Any = quantize
