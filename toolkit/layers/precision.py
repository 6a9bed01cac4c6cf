"""The dtypes that a layer computes in and keeps its weights in."""

from __future__ import annotations

from typing import Any, NoReturn

from toolkit import dtype_policies, dtypes
from toolkit.dtype_policies import DTypePolicy, DTypePolicyMap
from toolkit.errors import ArgumentError, UnsupportedError, unknown_choice

# What Keras's layers offer, most of which ours refuse.
_MODES = ("awq", "float8", "gptq", "int4", "int8")


class Precision:
    """Base of layers: a dtype policy; one that quantizes is refused by most."""

    name: str
    autocast: bool
    _path: str | None = None
    _autocast_dtype: str | None
    _dtype_policy: DTypePolicy
    # Whether floating inputs are cast to the compute dtype, where that is wished; not
    # those that are numbers of something, which 16 bits could not tell apart.
    _casts_inputs: bool = True
    _input_dtype: str | None = None  # what they are cast to; None: as they are
    _modes: tuple[str, ...] = ()
    _policy_map: DTypePolicyMap | None = None

    @property
    def dtype_policy(self) -> DTypePolicy:
        """The dtypes of computation and weights; settable."""
        if self._policy_map is not None:
            return self._policy_map
        return self._dtype_policy

    @dtype_policy.setter
    def dtype_policy(self, value: Any) -> None:
        policy, given = dtype_policies.get(value), self._policy_map
        if isinstance(policy, DTypePolicyMap):
            self._use_policy(self._policy_in(policy))
            self._policy_map = policy
            return
        self._use_policy(policy)
        if given is None or self._path is None:
            self._policy_map = None
        else:  # the map stays, with another policy for this layer
            if self._path in list(given):
                del given[self._path]
            given[self._path] = policy

    def _policy_in(self, policies: DTypePolicyMap) -> DTypePolicy:
        """What a map has for this layer, if the layer knows its path already."""
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
        """The dtype of the computation."""
        return self._dtype_policy.compute_dtype

    @property
    def variable_dtype(self) -> str:
        """The dtype of the weights."""
        return self._dtype_policy.variable_dtype

    dtype = variable_dtype

    @property
    def input_dtype(self) -> str:
        """The dtype that floating inputs are cast to."""
        return self.compute_dtype

    # --- quantization -----------------------------------------------------------------

    @property
    def quantization_mode(self) -> str | None:
        """How weights are quantized; None if they are floating."""
        return self._dtype_policy.quantization_mode

    def _accept_quantized(self, policy: Any) -> None:
        """Refuse a policy of quantization."""
        raise ArgumentError(
            f"{type(self).__name__}: the layer does not compute with weights that are "
            f"quantized so; received the policy {policy!r}"
        )

    def quantize(self, mode: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Refuse: only Dense, EinsumDense and Embedding are quantized.

        Raises:
            UnsupportedError: always, but ArgumentError for a mode that Keras has not.
        """
        if mode is not None and mode not in _MODES:
            raise unknown_choice("quantize: Invalid quantization mode", mode, _MODES)
        raise UnsupportedError(
            f"{type(self).__name__} {self.name!r}: quantize(mode={mode!r}) is not "
            "supported; use a dtype policy such as 'mixed_bfloat16' for smaller values"
        )

    def _refuse_mode(self, mode: str) -> NoReturn:
        raise UnsupportedError(
            f"{type(self).__name__} {self.name!r}: quantize(mode={mode!r}) is not "
            f"supported; expected one of {self._modes}"
        )

    quantized_build: Any = quantize
    quantized_call: Any = quantize
