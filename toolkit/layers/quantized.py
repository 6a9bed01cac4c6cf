"""Main weights in 8 bits: whole numbers with scales, or floats for training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import dtype_policies, ops
from toolkit.errors import ArgumentError, NotBuiltError, ToolkitError, UnsupportedError
from toolkit.layers.float8 import NAMES, create_scales, product
from toolkit.layers.lora import LowRank
from toolkit.quantizers.configs import Int8QuantizationConfig, resolve
from toolkit.quantizers.quantizer import AbsMaxQuantizer
from toolkit.serialization import deserialize_keras_object, serialize_keras_object


class QuantizedWeight(LowRank):
    """Base of layers whose main weight may be quantized.

    With "int8" the weight is kept as whole numbers, and is these / scale. Inputs are
    rounded too, as the config of quantization says. Products are computed in the
    compute dtype, of the same numbers as those of whole numbers, and gradients of
    inputs pass as if nothing was rounded.

    With "float8" the weight stays as it is, and is trained: see `product`.

    A subclass defines `_shared_axes`: the axes of the weight that share a scale.
    """

    _modes: tuple[str, ...] = ("int8", "float8")
    _quantized_as: str | None = None  # by the weights that exist
    inputs_quantizer: Any = None

    def __init__(self, *, quantization_config: Any = None, **kwargs: Any) -> None:
        if isinstance(quantization_config, dict):
            quantization_config = deserialize_keras_object(quantization_config)
        self.quantization_config = quantization_config
        super().__init__(**kwargs)

    def _shared_axes(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _input_axes(self) -> tuple[int, ...]:
        """The axes of inputs that share a scale."""
        return (-1,)

    # --- how it starts ----------------------------------------------------------------

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Compute with numbers of 8 bits.

        Args:
            mode: "int8" for whole numbers, in place of the weight; "float8" to train
                with floats; other modes of Keras are refused.
            type_check: whether to refuse subclasses, whose `call` may not know of it.
            config: which quantizers to use: see `quantizers.Int8QuantizationConfig`.

        Raises:
            ArgumentError: if the layer is quantized already.
            NotBuiltError: if it has no weights yet.
            UnsupportedError: for other modes, and for subclasses.

        Example:
            >>> import toolkit
            >>> layer = toolkit.layers.Dense(2)
            >>> layer.build((None, 3))
            >>> layer.quantize("int8")
            >>> layer.dtype_policy.name
            'int8_from_float32'
        """
        config = resolve(mode, config)
        if not self.built:
            raise NotBuiltError(
                f"{self.name}: Cannot quantize a layer that isn't yet built."
            )
        if self.quantization_mode is not None:
            raise ArgumentError(
                f"{self.name}: the layer is already quantized with dtype_policy="
                f"{self.dtype_policy.name!r}; received mode={config.mode!r}"
            )
        if type_check and "_shared_axes" not in vars(type(self)):
            raise UnsupportedError(
                f"{type(self).__name__} {self.name!r}: quantize does not know what "
                "this subclass computes; pass type_check=False if it uses `kernel`"
            )
        if config.mode not in self._modes:
            self._refuse_mode(config.mode)
        policy = dtype_policies.get(f"{config.mode}_from_{self._dtype_policy.name}")
        before = self.quantization_config, self.dtype_policy
        try:
            self.quantization_config, self.dtype_policy = config, policy
        except ToolkitError:
            self.quantization_config, self.dtype_policy = before
            raise

    def _use_policy(self, policy: Any) -> None:
        super()._use_policy(policy)
        if getattr(self, "built", False):
            if self._quantized_as not in (None, self.quantization_mode):
                raise ArgumentError(
                    f"{self.name}: a quantized layer cannot be made floating again, "
                    f"nor quantized in another way; received the policy {policy!r}"
                )
            if self.quantization_mode != self._quantized_as:
                self._quantize_weight()

    def _accept_quantized(self, policy: Any) -> None:
        if policy.quantization_mode not in self._modes:
            super()._accept_quantized(policy)

    def _create_adapted(self, shape: Any) -> None:
        if self.quantization_mode == "int8":
            return self._create_quantized(tuple(shape))
        super()._create_adapted(shape)
        if self.quantization_mode == "float8":
            self._create_scales()
        return None

    def _create_scales(self) -> None:
        self._quantized_as = "float8"
        create_scales(self)

    def _create_quantized(self, shape: tuple[int, ...]) -> None:
        name = self._adapted
        options: dict[str, Any] = {"trainable": False}
        self._quantized_as = "int8"
        config = self.quantization_config or Int8QuantizationConfig()
        self.inputs_quantizer = config.activation_quantizer
        weight = self.add_weight(shape, "zeros", "int8", name=name, **options)
        setattr(self, f"_{name}", weight)
        scale = self._stored_scale(ops.ones(self._kept_shape(shape)))
        options["name"] = f"{name}_scale"
        setattr(self, f"{name}_scale", self.add_weight(scale.shape, "ones", **options))

    def _quantize_weight(self) -> None:
        """Put the weight's whole numbers in its place, or create scales for floats."""
        weight, locked = getattr(self, f"_{self._adapted}"), self._locked
        values: Any = ()
        if self.quantization_mode == "int8":
            values = self._whole_numbers(weight.value)
        self._locked = False
        if values:
            delattr(self, f"_{self._adapted}")
            self._create_quantized(tuple(weight.shape))
        else:
            self._create_scales()
        self._locked = locked
        for variable, value in zip(self._quantized_pair(), values, strict=False):
            variable.assign(value)

    def _whole_numbers(self, value: Any) -> tuple[Any, Any]:
        """(int8, scale as it is stored) of a floating weight."""
        config = self.quantization_config
        quantizer = config and config.weight_quantizer
        quantizer = quantizer or AbsMaxQuantizer(axis=self._shared_axes())
        whole, scale = quantizer(value, to_numpy=True)
        if tuple(scale.shape) != self._kept_shape(value.shape):
            raise ArgumentError(
                f"{self.name}: the weight_quantizer must have a scale of shape "
                f"{self._kept_shape(value.shape)}, from axis={self._shared_axes()}; "
                f"received {tuple(scale.shape)}"
            )
        return whole, self._stored_scale(scale)

    # --- scales -----------------------------------------------------------------------

    def _kept_shape(self, shape: Any) -> tuple[int, ...]:
        """The shape of a weight with extent 1 for the axes that share a scale."""
        shared = {axis % len(shape) for axis in self._shared_axes()}
        return tuple(1 if i in shared else n for i, n in enumerate(shape))

    def _stored_scale(self, scale: Any) -> Any:
        """A scale (`_kept_shape`) as Keras's files have it: without shared axes."""
        return ops.squeeze(scale, self._shared_axes())

    def _scale_of_weight(self, scale: Any) -> Any:
        """A stored scale in `_kept_shape`."""
        return ops.expand_dims(scale, self._shared_axes())

    # --- how it is used ---------------------------------------------------------------

    def _product(self, function: Callable[[Any, Any], Any], inputs: Any) -> Any:
        """`function(inputs, kernel)`, in as many bits as the mode says."""
        if self._quantized_as != "float8":
            return function(self._rounded(inputs), self._adapted_value())
        if self.lora_enabled:
            raise UnsupportedError(
                f"{self.name}: a layer quantized as 'float8' cannot be adapted by lora"
            )
        return product(self, function, inputs)

    def _quantized_pair(self) -> tuple[Any, Any]:
        name = self._adapted
        return getattr(self, f"_{name}"), getattr(self, f"{name}_scale")

    def _main_weight(self) -> Any:
        if self._quantized_as != "int8":
            return super()._main_weight()
        weight, scale = self._quantized_pair()
        return ops.divide(weight, self._scale_of_weight(ops.convert_to_tensor(scale)))

    def _rounded(self, inputs: Any) -> Any:
        """Inputs as their whole numbers stand for them, if they are quantized."""
        if self._quantized_as != "int8" or self.inputs_quantizer is None:
            return inputs
        whole, scale = self.inputs_quantizer(inputs, axis=self._input_axes())
        error = ops.subtract(ops.divide(whole, scale), inputs)
        return ops.add(inputs, ops.stop_gradient(error))

    # --- configs and files ------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("quantization_config", None)
        if self.quantization_config is None:
            return config
        plain = serialize_keras_object(self.quantization_config)
        return config | {"quantization_config": plain}

    def _own_variables(self) -> list[Any]:
        """Of a quantized layer as in Keras: weight, bias, scales."""
        found = super()._own_variables()
        if self._quantized_as is None:
            return found
        weight = getattr(self, f"_{self._adapted}")
        names = (f"{self._adapted}_scale",) if self._quantized_as == "int8" else NAMES
        scales = [getattr(self, name) for name in names if hasattr(self, name)]
        taken = {id(v) for v in (weight, *scales)}
        return [weight, *(v for v in found if id(v) not in taken), *scales]

    def save_own_variables(self, store: Any) -> None:
        """As for any layer; an adaptation is added to the weight it adapts."""
        if not (self._quantized_as == "int8" and self.lora_enabled):
            return super().save_own_variables(store)
        new = self._whole_numbers(ops.convert_to_tensor(self._adapted_value()))
        pairs = zip(self._quantized_pair(), new, strict=True)
        values = {id(variable): value for variable, value in pairs}
        for i, variable in enumerate(self._kept_variables()):
            store[str(i)] = values.get(id(variable), variable)
        return None
