"""Global settings with their Keras names, and settings of devices and libraries."""

from __future__ import annotations

from typing import Any

from toolkit import dtype_policies
from toolkit.backends.devices import (
    check_device,
    device,
    list_devices,
    set_backend,
    set_device,
    set_logical_devices,
    set_num_threads,
    show,
)
from toolkit.definitions.namespaces import module_dir
from toolkit.errors import UnsupportedError
from toolkit.settings import (
    autotune,
    backend,
    backend_of,
    default_num_threads,
    disable_flash_attention,
    disable_interactive_logging,
    disable_traceback_filtering,
    enable_flash_attention,
    enable_interactive_logging,
    enable_traceback_filtering,
    environment,
    epsilon,
    floatx,
    free_extents,
    home,
    image_data_format,
    is_flash_attention_enabled,
    is_interactive_logging_enabled,
    is_traceback_filtering_enabled,
    logical_devices,
    matmul_precision,
    max_epochs,
    max_steps_per_epoch,
    num_threads,
    placement,
    set_autotune,
    set_epsilon,
    set_floatx,
    set_free_extents,
    set_image_data_format,
    set_matmul_precision,
    set_max_epochs,
    set_max_steps_per_epoch,
    standardize_data_format,
)

__all__ = [
    "autotune",
    "backend",
    "backend_of",
    "check_device",
    "default_num_threads",
    "device",
    "disable_flash_attention",
    "disable_interactive_logging",
    "disable_traceback_filtering",
    "dtype_policy",
    "enable_flash_attention",
    "enable_interactive_logging",
    "enable_traceback_filtering",
    "enable_unsafe_deserialization",
    "environment",
    "epsilon",
    "floatx",
    "free_extents",
    "home",
    "image_data_format",
    "is_flash_attention_enabled",
    "is_interactive_logging_enabled",
    "is_nnx_enabled",
    "is_traceback_filtering_enabled",
    "list_devices",
    "logical_devices",
    "matmul_precision",
    "max_epochs",
    "max_steps_per_epoch",
    "num_threads",
    "placement",
    "set_autotune",
    "set_backend",
    "set_device",
    "set_dtype_policy",
    "set_epsilon",
    "set_floatx",
    "set_free_extents",
    "set_image_data_format",
    "set_logical_devices",
    "set_matmul_precision",
    "set_max_epochs",
    "set_max_steps_per_epoch",
    "set_num_threads",
    "show",
    "standardize_data_format",
]


def dtype_policy() -> Any:
    """Return the default dtype policy of layers: floatx unless set.

    Returns:
        A DTypePolicy.

    Example:
        >>> import toolkit
        >>> toolkit.config.dtype_policy().name
        'float32'
    """
    return dtype_policies.dtype_policy()


def set_dtype_policy(policy: Any) -> None:
    """Set the default dtype policy of layers; None restores floatx.

    Args:
        policy: a dtype, "mixed_float16", "mixed_bfloat16", or a DTypePolicy.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_dtype_policy("mixed_bfloat16")
        >>> toolkit.layers.Dense(2).compute_dtype
        'bfloat16'
        >>> toolkit.config.set_dtype_policy(None)
    """
    dtype_policies.set_dtype_policy(policy)


def is_nnx_enabled() -> bool:
    """Return False: Variables are never Flax NNX variables.

    Returns:
        False.

    Example:
        >>> import toolkit
        >>> toolkit.config.is_nnx_enabled()
        False
    """
    return False


def enable_unsafe_deserialization() -> None:
    """Raise an error: code in a file never runs.

    Raises:
        UnsupportedError: always.

    Example:
        >>> import toolkit
        >>> try:
        ...     toolkit.config.enable_unsafe_deserialization()
        ... except toolkit.errors.UnsupportedError:
        ...     print("code in a file never runs")
        code in a file never runs
    """
    raise UnsupportedError(
        "enable_unsafe_deserialization: toolkit never runs code from a file; pass the "
        "functions of Lambda layers in custom_objects instead"
    )


__dir__ = module_dir(__name__)
