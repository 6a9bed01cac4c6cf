"""Configs of quantization."""

from __future__ import annotations

from typing import Any

from toolkit.errors import ArgumentError, unknown_choice
from toolkit.quantizers.quantizer import AbsMaxQuantizer, StaticQuantizer
from toolkit.serialization.recording import Recorded

MODES = ("int8", "float8", "int4", "gptq", "awq")


class QuantizationConfig(Recorded):
    """Base class of quantization configs.

    Args:
        weight_quantizer: for weights; the default of the mode if None.
        activation_quantizer: for inputs; None leaves inputs floating.

    Example:
        >>> from toolkit import quantizers
        >>> config = quantizers.Int8QuantizationConfig()
        >>> isinstance(config, quantizers.QuantizationConfig)
        True
    """

    def __init__(
        self, weight_quantizer: Any = None, activation_quantizer: Any = None
    ) -> None:
        self.weight_quantizer = weight_quantizer
        self.activation_quantizer = activation_quantizer

    @property
    def mode(self) -> str:
        """Return the quantization mode, such as "int8"."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `mode`; a subclass must"
        )

    @property
    def policy_mode(self) -> str:
        """Return the mode in the spelling of policies, such as "int4/128"."""
        return self.mode

    @staticmethod
    def weight_quantizer_or_default(config: Any, default: Any) -> Any:
        """Return the weight quantizer of a config, or `default`.

        Args:
            config: a config, or None.
            default: the result for no config.
        """
        quantizer = None if config is None else config.weight_quantizer
        return default if quantizer is None else quantizer

    @staticmethod
    def activation_quantizer_or_default(config: Any, default: Any) -> Any:
        """Return the activation quantizer of a config (can be None), or `default`.

        Args:
            config: a config, or None.
            default: the result for no config.
        """
        return default if config is None else config.activation_quantizer

    @property
    def is_static(self) -> bool:
        """Return whether the layer is calibrated: its inputs have a fixed scale."""
        return False

    def _check_int8(self) -> None:
        quantizer = self.weight_quantizer
        if quantizer is not None and quantizer.output_dtype != "int8":
            raise ArgumentError(
                f"{type(self).__name__}: the weight_quantizer must have "
                f"output_dtype='int8'; received {quantizer.output_dtype!r}"
            )


class Int8QuantizationConfig(QuantizationConfig):
    """Config of 8-bit integers.

    Args:
        weight_quantizer: for weights; an `AbsMaxQuantizer` over each output if None.
            With a `dataset` it must be the default.
        activation_quantizer: for inputs; "default" is `AbsMaxQuantizer()`, None leaves
            inputs floating. Calibrated convolutions always use a fixed scale.
        dataset: calibration data for convolutions; without it, convolutions stay
            floating. An array, or an iterable of batches; if a batch is a tuple, its
            first element. See `Model.quantize`.

    Example:
        >>> from toolkit import quantizers
        >>> quantizers.Int8QuantizationConfig(activation_quantizer=None).mode
        'int8'
    """

    mode = "int8"

    def __init__(
        self,
        weight_quantizer: Any = None,
        activation_quantizer: Any = "default",
        *,
        dataset: Any = None,
    ) -> None:
        if isinstance(activation_quantizer, str) and activation_quantizer == "default":
            activation_quantizer = AbsMaxQuantizer()
        super().__init__(weight_quantizer, activation_quantizer)
        self._check_int8()
        if dataset is not None and weight_quantizer is not None:
            raise ArgumentError(
                "Int8QuantizationConfig: expected no weight_quantizer with a "
                "dataset, because convolutions and other layers share scales along "
                f"different axes; received {weight_quantizer!r:.80}"
            )
        self.dataset: Any = dataset

    @property
    def is_static(self) -> bool:
        """Return whether the layer is calibrated: its inputs have a fixed scale."""
        return isinstance(self.activation_quantizer, StaticQuantizer)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments without the data, which only calibration needs."""
        return self._recorded_config(strict=True, skip=frozenset(("dataset",)))


class Int4QuantizationConfig(QuantizationConfig):
    """Config of 4-bit integers.

    Args:
        weight_quantizer: for weights, without blocks.
        activation_quantizer: for inputs, without blocks.
        block_size: the number of inputs that share a scale; None or -1 for all.

    Example:
        >>> from toolkit import quantizers
        >>> quantizers.Int4QuantizationConfig(block_size=64).mode
        'int4'
    """

    mode = "int4"

    def __init__(
        self,
        weight_quantizer: Any = None,
        activation_quantizer: Any = "default",
        block_size: int | None = 128,
    ) -> None:
        if isinstance(activation_quantizer, str) and activation_quantizer == "default":
            activation_quantizer = None
        super().__init__(weight_quantizer, activation_quantizer)
        if block_size is not None and block_size != -1 and block_size < 1:
            raise ArgumentError(
                "Int4QuantizationConfig: block_size must be None, -1, or a positive "
                f"integer; received {block_size!r}"
            )
        self.block_size = block_size
        has_quantizers = (weight_quantizer, activation_quantizer) != (None, None)
        if block_size not in (None, -1) and has_quantizers:
            raise ArgumentError(
                "Int4QuantizationConfig: sub-channel quantization, with a block_size, "
                f"does not support quantizers; received block_size={block_size}"
            )
        if weight_quantizer is not None and weight_quantizer.value_range != (-8, 7):
            raise ArgumentError(
                "Int4QuantizationConfig: the weight_quantizer must have value_range="
                f"(-8, 7); received {weight_quantizer.value_range}"
            )
        self._check_int8()

    @property
    def policy_mode(self) -> str:
        return f"int4/{self.block_size or -1}"


class Float8QuantizationConfig(QuantizationConfig):
    """Config of training with inputs, weights and gradients rounded to 8-bit floats.

    Example:
        >>> from toolkit import quantizers
        >>> quantizers.Float8QuantizationConfig().mode
        'float8'
    """

    mode = "float8"

    def __init__(self) -> None:
        super().__init__()


# Arguments that only calibration needs.
_CALIBRATION_ARGUMENTS = frozenset(
    ("dataset", "tokenizer", "quantization_layer_structure")
)


class _CalibratedConfig(QuantizationConfig):
    """Config of a mode that needs calibration data."""

    weight_bits: int
    group_size: int

    def _check_positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise ArgumentError(
                    f"{type(self).__name__}: {name} must be a positive integer; "
                    f"received {getattr(self, name)!r}"
                )

    def _check_group_size(self) -> None:
        if self.group_size < -1 or self.group_size == 0:
            raise ArgumentError(
                f"{type(self).__name__}: Invalid group_size: expected -1 or a positive "
                f"integer; received {self.group_size!r}"
            )

    def dtype_policy_string(self) -> str:
        """Return the name of the policy: mode/bits/group."""
        return f"{self.mode}/{self.weight_bits}/{self.group_size}"

    @property
    def policy_mode(self) -> str:
        return self.dtype_policy_string()

    def get_config(self) -> dict[str, Any]:
        """Return the arguments without data and layers, used only in calibration."""
        config = self._recorded_config(strict=True, skip=_CALIBRATION_ARGUMENTS)
        return {**config, "dataset": None, "tokenizer": None}


class GPTQConfig(_CalibratedConfig):
    """Config of GPTQ: round weights in order and compensate with the remaining ones.

    See `Model.quantize`.

    Args:
        dataset: texts or arrays of tokens to calibrate with.
        tokenizer: an object whose method `tokenize` converts a text to tokens; None for
            tokens.
        weight_bits: 2, 3, 4 or 8.
        num_samples: the number of samples.
        per_channel: whether each output has a separate scale.
        sequence_length: the length of a sample in tokens.
        hessian_damping: from 0 to 1.
        group_size: the number of weights that share a scale; -1 for all.
        symmetric: whether 0 is in the middle of the range.
        activation_order: whether to round in descending order of the inputs.
        quantization_layer_structure: a dict of "pre_block_layers", which compute the
            inputs of the first block, and "sequential_blocks", layers that are
            calibrated in order. None: the result of the model's
            `get_quantization_layer_structure`.

    Example:
        >>> import numpy as np
        >>> from toolkit import quantizers
        >>> tokens = np.ones((8, 16), "int32")
        >>> config = quantizers.GPTQConfig(tokens, None, group_size=64)
        >>> config.weight_bits, config.mode
        (4, 'gptq')

    Reference:
        E. Frantar et al., GPTQ, https://arxiv.org/abs/2210.17323
    """

    mode = "gptq"

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        *,
        weight_bits: int = 4,
        num_samples: int = 128,
        per_channel: bool = True,
        sequence_length: int = 512,
        hessian_damping: float = 0.01,
        group_size: int = 128,
        symmetric: bool = False,
        activation_order: bool = False,
        quantization_layer_structure: Any = None,
    ) -> None:
        super().__init__()
        self.dataset: Any = dataset
        self.tokenizer: Any = tokenizer
        self.weight_bits: int = weight_bits
        self.num_samples: int = num_samples
        self.per_channel: bool = per_channel
        self.sequence_length: int = sequence_length
        self.hessian_damping: float = hessian_damping
        self.group_size: int = group_size
        self.symmetric: bool = symmetric
        self.activation_order: bool = activation_order
        self.quantization_layer_structure = quantization_layer_structure
        if weight_bits not in (2, 3, 4, 8):
            raise unknown_choice(
                "GPTQConfig: Unsupported weight_bits", weight_bits, (2, 3, 4, 8)
            )
        if not 0 <= hessian_damping <= 1:
            raise ArgumentError(
                "GPTQConfig: hessian_damping must be between 0 and 1; received "
                f"{hessian_damping!r}"
            )
        self._check_positive("num_samples", "sequence_length")
        self._check_group_size()


class AWQConfig(_CalibratedConfig):
    """Config of AWQ: scale up the weights that multiply large inputs, then round.

    See `Model.quantize`.

    Args:
        dataset: texts or arrays of tokens to calibrate with.
        tokenizer: an object whose method `tokenize` converts a text to tokens; None for
            tokens.
        weight_bits: 4.
        num_samples: the number of samples.
        sequence_length: the length of a sample in tokens.
        group_size: the number of weights that share a scale; -1 for all.
        num_grid_points: the number of scales to try.
        quantization_layer_structure: a dict of "pre_block_layers", which compute the
            inputs of the first block, and "sequential_blocks", layers that are
            calibrated in order. None: the result of the model's
            `get_quantization_layer_structure`.

    Example:
        >>> import numpy as np
        >>> from toolkit import quantizers
        >>> tokens = np.ones((8, 16), "int32")
        >>> config = quantizers.AWQConfig(tokens, None, group_size=64)
        >>> config.weight_bits, config.mode
        (4, 'awq')

    Reference:
        J. Lin et al., AWQ, https://arxiv.org/abs/2306.00978
    """

    mode = "awq"

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        *,
        weight_bits: int = 4,
        num_samples: int = 128,
        sequence_length: int = 512,
        group_size: int = 128,
        num_grid_points: int = 20,
        quantization_layer_structure: Any = None,
    ) -> None:
        super().__init__()
        self.dataset: Any = dataset
        self.tokenizer: Any = tokenizer
        self.weight_bits: int = weight_bits
        self.num_samples: int = num_samples
        self.sequence_length: int = sequence_length
        self.group_size: int = group_size
        self.num_grid_points = num_grid_points
        self.quantization_layer_structure = quantization_layer_structure
        if weight_bits != 4:
            raise ArgumentError(
                "AWQConfig only supports 4-bit quantization; received "
                f"weight_bits={weight_bits!r}"
            )
        self._check_positive("num_samples", "sequence_length", "num_grid_points")
        self._check_group_size()


def resolve(mode: Any, config: Any) -> Any:
    """Return the config for `quantize(mode, config)`.

    Raises:
        ArgumentError: if the two contradict, or one is missing or unknown.
    """
    if isinstance(config, str):
        mode, config = config, None
    if isinstance(mode, QuantizationConfig) and config is None:
        mode, config = None, mode
    if config is not None and not isinstance(config, QuantizationConfig):
        raise ArgumentError(
            "quantize: `config` must be an instance of `QuantizationConfig`; received "
            f"{config!r}"
        )
    if mode is None and config is None:
        raise ArgumentError("quantize: you must provide either `mode` or `config`")
    if mode is not None and mode not in MODES:
        raise unknown_choice("quantize: Invalid quantization mode", mode, MODES)
    if config is None:
        if mode in ("gptq", "awq"):
            raise ArgumentError(
                f"quantize: for mode {mode!r} you must pass a `{mode.upper()}Config` "
                "object as `config`"
            )
        return _DEFAULTS[mode]()
    if mode is not None and config.mode != mode:
        raise ArgumentError(
            f"quantize: Contradictory arguments: mode={mode!r} but config.mode="
            f"{config.mode!r}"
        )
    return config


_DEFAULTS = {
    "int8": Int8QuantizationConfig,
    "int4": Int4QuantizationConfig,
    "float8": Float8QuantizationConfig,
}
