"""What Keras's layers offer to quantize them, which most of ours refuse."""

from __future__ import annotations

from typing import Any, NoReturn

from toolkit.errors import ArgumentError, UnsupportedError, unknown_choice

_MODES = ("awq", "float8", "gptq", "int4", "int8")


class Quantizable:
    """Base of layers: they are not quantized, and say so."""

    name: str
    _dtype_policy: Any
    _modes: tuple[str, ...] = ()

    @property
    def quantization_mode(self) -> str | None:
        """How weights are quantized; None if they are floating."""
        return self._dtype_policy.quantization_mode  # type: ignore[no-any-return]

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

    def add_metric(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: metrics are attributes of a layer, or given to `compile`.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"{type(self).__name__} {self.name!r}: add_metric does not exist; set a "
            "metric as an attribute and update it in `call`, or pass it to "
            "`Model.compile(metrics=[...])`"
        )
