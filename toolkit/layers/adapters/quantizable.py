"""Layers whose main weight can be quantized to 8 or 4 bits."""

from __future__ import annotations

from typing import Any

from toolkit import dtype_policies, ops
from toolkit.buffer_pool import release_spare_memory
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, NotBuiltError, UnsupportedError
from toolkit.layers.adapters.calibrated import CalibratedWeight, ObservedWeight
from toolkit.layers.adapters.float8 import Float8Weight
from toolkit.layers.adapters.int4 import Int4Weight
from toolkit.layers.adapters.int8 import Int8Weight
from toolkit.layers.adapters.low_rank import LowRankLayer, LowRankWeight
from toolkit.layers.adapters.weight import Weight
from toolkit.layers.adapters.whole import IntegerWeight, ScaleLayout
from toolkit.layers.rollback import rollback_on_error
from toolkit.quantizers.awq import AWQ
from toolkit.quantizers.configs import (
    Int4QuantizationConfig,
    QuantizationConfig,
    resolve,
)
from toolkit.quantizers.gptq import GPTQ
from toolkit.serialization import deserialize_keras_object, serialize_keras_object
from toolkit.type_aliases import Shape

Calibration = GPTQ | AWQ

CALIBRATED: dict[str, Any] = {"gptq": GPTQ, "awq": AWQ}


class QuantizableLayer(LowRankLayer):
    """Base class of layers whose main weight can be quantized; see `Int8Weight`.

    A subclass defines `_scale_layout`.
    """

    _modes: tuple[str, ...] = ("int8", "int4", "float8", "gptq", "awq")
    _quantized: Weight | None = None  # per weight name
    kernel_scale: Variable

    def __init__(
        self,
        *,
        quantization_config: Any = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(quantization_config, dict):
            quantization_config = deserialize_keras_object(quantization_config)
        self.quantization_config: QuantizationConfig | None = quantization_config
        super().__init__(**kwargs)

    def _scale_layout(self) -> ScaleLayout:
        """Return the layout of scales: which elements of the weight share one."""
        raise NotImplementedError

    @property
    def inputs_quantizer(self) -> Any:
        """Return the quantizer of the inputs of an integer layer, or None."""
        return getattr(self._quantized, "inputs_quantizer", None)

    # --- conversion -------------------------------------------------------------------

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Quantize the main weight to 8 or 4 bits.

        Args:
            mode: "int8": integer weight and integer inputs. "int4": 4-bit integer
                weight in blocks with one scale each, floating inputs. "float8":
                training with 8-bit floats. "gptq" and "awq" need data: use
                `Model.quantize`.
            type_check: whether to reject subclasses, whose `call` may not support it.
            config: the quantizers: see `quantizers.Int8QuantizationConfig` and
                `Int4QuantizationConfig`.

        Raises:
            ArgumentError: if the layer is already quantized.
            NotBuiltError: if the layer has no weights yet.
            UnsupportedError: for "gptq" and "awq", and for subclasses.

        Example:
            >>> import toolkit
            >>> layer = toolkit.layers.Dense(2)
            >>> layer.build((None, 3))
            >>> layer.quantize("int8")
            >>> layer.dtype_policy.name
            'int8_from_float32'
        """
        config = resolve(mode, config)
        self._check_quantizable(config, type_check)
        if config.mode in CALIBRATED:
            raise UnsupportedError(
                f"{self.name}: quantize(mode={config.mode!r}) needs the inputs of "
                "the layer in a model; expected a call of the model's `quantize`"
            )
        policy = self._policy_for(config)
        with rollback_on_error([self]):
            self.quantization_config, self.dtype_policy = config, policy
        release_spare_memory()

    def _policy_for(self, config: QuantizationConfig) -> Any:
        return dtype_policies.get(
            f"{config.policy_mode}_from_{self._dtype_policy.name}"
        )

    def _check_quantizable(self, config: Any, type_check: bool) -> None:
        """Raise if the layer does not support the config."""
        if not self.built:
            raise NotBuiltError(
                f"{self.name}: Cannot quantize a layer that isn't yet built."
            )
        if self.quantization_mode is not None:
            raise ArgumentError(
                f"{self.name}: the layer is already quantized with dtype_policy="
                f"{self.dtype_policy.name!r}; received mode={config.mode!r}"
            )
        if type_check and not type(self).__module__.startswith("toolkit.layers."):
            raise UnsupportedError(
                f"{type(self).__name__} {self.name!r}: quantize does not support "
                "this subclass, because its computation is unknown; pass "
                "type_check=False if it uses `kernel`"
            )
        if config.mode not in self._modes:
            self._refuse_mode(config.mode)
        if config.mode not in CALIBRATED:
            return
        if not self._scale_layout().is_matrix:
            raise UnsupportedError(
                f"{self.name}: {config.mode!r} needs a matrix product whose "
                "contracted axes are the first axes of the kernel"
            )
        if self.lora_enabled:
            raise UnsupportedError(
                f"{self.name}: a layer adapted by lora cannot be quantized as "
                f"{config.mode!r}"
            )

    def _use_policy(self, policy: Any) -> None:
        if not getattr(self, "built", False):
            super()._use_policy(policy)
            return
        with rollback_on_error([self]):
            super()._use_policy(policy)
            self._follow_policy(policy)

    def _follow_policy(self, policy: Any) -> None:
        """Quantize the weight of a built layer if its new policy requires it."""
        existing = self._quantized and self._quantized.mode
        if existing not in (None, self.quantization_mode):
            raise ArgumentError(
                f"{self.name}: a quantized layer cannot return to floating point or "
                f"change its quantization; received the policy {policy!r}"
            )
        if self.quantization_mode != existing:
            self._quantize_weight()

    def _accept_quantized(self, policy: Any) -> None:
        mode = policy.quantization_mode
        if mode not in self._modes:
            super()._accept_quantized(policy)
        existing = self._quantized and self._quantized.mode
        if self.built and mode in CALIBRATED and existing != mode:
            raise ArgumentError(
                f"{self.name}: mode {mode!r} needs calibration data; expected a call "
                f"of the model's `quantize`; received the policy {policy!r}"
            )

    def _create_adapted(self, shape: Shape) -> None:
        if self.quantization_mode in ("int8", "int4", *CALIBRATED):
            return self._create_whole(self._whole_weight(), shape)
        super()._create_adapted(shape)
        if self.quantization_mode == "float8":
            self._create_float8()
        return None

    def _whole_weight(self) -> IntegerWeight:
        """Return the integer form of the main weight."""
        return self._integer_weight(self._scale_layout())

    def _integer_weight(
        self, layout: ScaleLayout, name: str | None = None
    ) -> IntegerWeight:
        """Return an integer weight for the config, or for the policy without a config.

        Args:
            layout: the layout of scales.
            name: the name of the weight; the main one if None.
        """
        config = self.quantization_config
        mode = config.mode if config else self.quantization_mode
        if mode in CALIBRATED:
            return CalibratedWeight(self, layout, self._dtype_policy)
        if mode == "int8":
            return Int8Weight(self, layout, config, name)
        size = getattr(self._dtype_policy, "block_size", None)
        config = config or Int4QuantizationConfig(block_size=size)
        return Int4Weight(self, layout, config, name)

    def _create_whole(self, weight: IntegerWeight, shape: Shape) -> None:
        weight.create(tuple(shape))
        self._adapt_with(weight)

    def _create_float8(self) -> None:
        weight = Float8Weight(self)
        weight.create_scales()
        self._adapt_with(weight)

    def _adapt_with(self, weight: Weight) -> None:
        """Use `weight` instead of the plain weight, under a low-rank adaptation."""
        self._quantized = weight
        if isinstance(self._adapter, LowRankWeight):
            self._adapter = LowRankWeight(self, weight)
        else:
            self._adapter = weight

    def _quantize_weight(self) -> None:
        """Replace the weight by integers, or create scales for float8."""
        locked, plain = self._locked, Weight(self).variable
        if self.quantization_mode == "float8":
            self._locked = False
            self._create_float8()
            self._locked = locked
        else:
            weight = self._whole_weight()
            self._replace_weight(weight, weight.quantized(plain.value))

    def _replace_weight(self, weight: IntegerWeight, values: dict[str, Any]) -> None:
        """Replace a weight by integers, given by the attributes of their Variables."""
        locked, shape = self._locked, Weight(self, weight.name).shape
        self._locked = False
        delattr(self, f"_{weight.name}")
        self._create_whole(weight, shape)
        for name, value in values.items():
            getattr(self, name).assign(value)
        self._locked = locked

    # --- calibration ------------------------------------------------------------------

    def _observe_inputs(self, config: Any) -> Calibration:
        """Record the inputs of calls until `_end_observation`."""
        layout = self._scale_layout()
        rows, _ = layout.matrix(Weight(self).shape)
        calibration = CALIBRATED[config.mode](rows, config)
        self._adapter = ObservedWeight(self, layout, calibration.observe)
        return calibration

    def _end_observation(self) -> None:
        self._adapter = None

    def _quantize_calibrated(self, calibration: Calibration, config: Any) -> None:
        """Replace the weight by the result of a calibration."""
        policy, layout = self._policy_for(config), self._scale_layout()
        plain = Weight(self).variable
        matrix = ops.reshape(plain.value, layout.matrix(plain.shape))
        result = calibration.quantize(ops.convert_to_numpy(ops.cast(matrix, "float32")))
        weight = CalibratedWeight(self, layout, policy)
        self._replace_weight(weight, weight.variable_values(result))
        self.quantization_config, self.dtype_policy = config, policy

    def enable_lora(self, rank: int, *args: Any, **kwargs: Any) -> None:
        if self.quantization_mode in CALIBRATED:
            raise UnsupportedError(
                f"{self.name}: a layer quantized as {self.quantization_mode!r} cannot "
                "be adapted by lora"
            )
        super().enable_lora(rank, *args, **kwargs)

    # --- configs and files ------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("quantization_config", None)
        if self.quantization_config is None:
            return config
        plain = serialize_keras_object(self.quantization_config)
        return config | {"quantization_config": plain}

    def _own_variables(self) -> list[Variable]:
        """Return a quantized layer's variables in Keras's order: weight, bias, scales.

        A calibrated weight is one of its `scales`, after the bias.
        """
        result = super()._own_variables()
        if self._quantized is None:
            return result
        name = f"_{self._adapted}"
        first = [getattr(self, name)] if hasattr(self, name) else []
        scales = [getattr(self, x) for x in self._quantized.scales if hasattr(self, x)]
        used = {*first, *scales}
        return [*first, *(v for v in result if v not in used), *scales]

    def _merged(self) -> dict[Variable, Any]:
        if not isinstance(self._quantized, IntegerWeight):
            return super()._merged()
        merged = ops.convert_to_tensor(self._main_weight())
        values = self._quantized.quantized(merged)
        return {getattr(self, name): value for name, value in values.items()}
