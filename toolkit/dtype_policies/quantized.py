"""Dtype policies of quantized layers.

Any of these policies can be built, compared and serialized. Each layer raises for the
policies that it cannot compute with.
"""

from __future__ import annotations

from typing import Any

from toolkit.arguments import is_int
from toolkit.dtype_policies.policy import DTypePolicy, default_policy, parse_policy_name
from toolkit.errors import ArgumentError, ArgumentTypeError

MODES = ("int8", "float8", "int4", "gptq", "awq")


class QuantizedDTypePolicy(DTypePolicy):
    """A quantization mode with the policy of the original layer.

    Args:
        mode: "int8", "float8", "int4", "gptq" or "awq".
        source_name: the name of the original layer's policy; the global one if None.

    Example:
        >>> from toolkit.dtype_policies import QuantizedDTypePolicy
        >>> QuantizedDTypePolicy("int8", "mixed_bfloat16").name
        'int8_from_mixed_bfloat16'
    """

    def __init__(self, mode: str, source_name: str | None = None) -> None:
        source: Any = default_policy().name if source_name is None else source_name
        self._compute_dtype, self._variable_dtype = parse_policy_name(source)
        if mode.split("/")[0] not in MODES:
            raise ArgumentError(
                f"{type(self).__name__}: Invalid quantization mode. Expected one of "
                f"{MODES}; received {mode!r}"
            )
        if mode == "int8" and self._compute_dtype == "float16":
            raise ArgumentError(
                f"{type(self).__name__}: mode {mode!r} doesn't work well with the "
                "compute dtype 'float16', whose range is too small"
            )
        self._name = f"{mode}_from_{source}"
        self._mode, self._source_name = mode, source
        self.quantization_mode: str = mode.split("/")[0]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain values."""
        return {"mode": self._mode, "source_name": self._source_name}


class QuantizedFloat8DTypePolicy(QuantizedDTypePolicy):
    """A float8 policy, which scales by the history of absolute maxima.

    Args:
        mode: "float8".
        source_name: as for `QuantizedDTypePolicy`.
        amax_history_length: the length of the history of absolute maxima.

    Example:
        >>> from toolkit.dtype_policies import QuantizedFloat8DTypePolicy
        >>> QuantizedFloat8DTypePolicy("float8", "float32").name
        'float8_from_float32'
    """

    default_amax_history_length = 1024

    def __init__(
        self, mode: str, source_name: str | None = None, amax_history_length: int = 1024
    ) -> None:
        super().__init__(mode, source_name)
        if not is_int(amax_history_length):
            raise ArgumentTypeError(
                "QuantizedFloat8DTypePolicy: amax_history_length must be an integer. "
                f"Received {amax_history_length!r}"
            )
        self.amax_history_length = amax_history_length

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "amax_history_length": self.amax_history_length}


class _GroupedDTypePolicy(QuantizedDTypePolicy):
    """A policy whose mode includes numbers: "gptq/4/128"."""

    _fields: tuple[str, ...]
    _supported_bits: tuple[int, ...] = ()

    def __init__(self, mode: str, source_name: str | None = None) -> None:
        base, *numbers = mode.split("/")
        mode_format = "/".join(self._fields)
        try:
            values = [int(number) for number in numbers]
        except ValueError:
            values = []
        if base != self._fields[0] or len(values) != len(self._fields) - 1:
            raise ArgumentError(
                f"Invalid mode for {type(self).__name__}. Expected format "
                f"{mode_format!r}, with integers; received {mode!r}"
            )
        *bits, group_size = values
        if any(n not in self._supported_bits for n in bits):
            raise ArgumentError(
                f"Invalid weight_bits in mode. {type(self).__name__} knows "
                f"{self._supported_bits}; received {mode!r}"
            )
        if group_size < -1 or group_size == 0:
            raise ArgumentError(
                f"Invalid {self._fields[-1].strip('<>')} in mode. Supported values are "
                f"-1 and integers > 0; received {mode!r}"
            )
        super().__init__(mode, source_name)
        self.mode = base
        for field, number in zip(self._fields[1:], values, strict=True):
            setattr(self, field.strip("<>"), number)


class Int4DTypePolicy(_GroupedDTypePolicy):
    """A policy of 4-bit integers in blocks: mode "int4/<block_size>".

    Args:
        mode: the mode with its numbers, such as "int4/64".
        source_name: the name of the original layer's policy; the global one if None.

    Example:
        >>> from toolkit.dtype_policies import Int4DTypePolicy
        >>> Int4DTypePolicy("int4/64", "float32").name
        'int4/64_from_float32'
    """

    _fields = ("int4", "<block_size>")


class GPTQDTypePolicy(_GroupedDTypePolicy):
    """A policy of GPTQ: mode "gptq/<weight_bits>/<group_size>".

    Args:
        mode: the mode with its numbers, such as "gptq/4/128".
        source_name: the name of the original layer's policy; the global one if None.

    Example:
        >>> from toolkit.dtype_policies import GPTQDTypePolicy
        >>> GPTQDTypePolicy("gptq/4/128", "float32").name
        'gptq/4/128_from_float32'
    """

    _fields = ("gptq", "<weight_bits>", "<group_size>")
    _supported_bits = (2, 3, 4, 8)


class AWQDTypePolicy(_GroupedDTypePolicy):
    """A policy of AWQ: mode "awq/4/<group_size>".

    Args:
        mode: the mode with its numbers, such as "awq/4/128".
        source_name: the name of the original layer's policy; the global one if None.

    Example:
        >>> from toolkit.dtype_policies import AWQDTypePolicy
        >>> AWQDTypePolicy("awq/4/128", "float32").name
        'awq/4/128_from_float32'
    """

    _fields = ("awq", "<weight_bits>", "<group_size>")
    _supported_bits = (4,)


def quantized_policy(name: str) -> QuantizedDTypePolicy:
    """Return the policy for a name such as "int8_from_float32"."""
    mode, separator, source = name.partition("_from_")
    if not separator or "_from_" in source:
        raise ArgumentError(
            "dtype_policies.get: Cannot convert `policy` into a valid pair (`mode`, "
            "`source_name`): expected a name such as 'int8_from_float32'; received "
            f"{name!r}"
        )
    base_mode = mode.split("/")[0]
    if base_mode == "float8":
        return QuantizedFloat8DTypePolicy(mode, source)
    if base_mode == "gptq":
        return GPTQDTypePolicy(mode, source)
    if base_mode == "awq":
        return AWQDTypePolicy(mode, source)
    return (Int4DTypePolicy if "/" in mode else QuantizedDTypePolicy)(mode, source)
