"""Dtype policies: the dtypes of a layer's computation and of its weights."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes
from toolkit.definitions.namespaces import module_dir
from toolkit.dtype_policies.policy import (
    DTypePolicy,
    FloatDTypePolicy,
    default_policy,
    set_default_policy,
)
from toolkit.dtype_policies.policy_map import DTypePolicyMap
from toolkit.dtype_policies.quantized import (
    MODES,
    AWQDTypePolicy,
    GPTQDTypePolicy,
    Int4DTypePolicy,
    QuantizedDTypePolicy,
    QuantizedFloat8DTypePolicy,
    quantized_policy,
)
from toolkit.errors import ArgumentError, ToolkitError
from toolkit.serialization import deserialize_keras_object, serialize_keras_object

__all__ = [
    "AWQDTypePolicy",
    "DTypePolicy",
    "DTypePolicyMap",
    "FloatDTypePolicy",
    "GPTQDTypePolicy",
    "Int4DTypePolicy",
    "QuantizedDTypePolicy",
    "QuantizedFloat8DTypePolicy",
    "deserialize",
    "dtype_policy",
    "get",
    "serialize",
    "set_dtype_policy",
]

_BY_NAME = {
    cls.__name__: cls
    for cls in (
        *(AWQDTypePolicy, DTypePolicy, DTypePolicyMap, FloatDTypePolicy),
        *(GPTQDTypePolicy, Int4DTypePolicy, QuantizedDTypePolicy),
        QuantizedFloat8DTypePolicy,
    )
}


def dtype_policy() -> DTypePolicy:
    """Return the default policy of layers: floatx unless set.

    Returns:
        A DTypePolicy.

    Example:
        >>> import toolkit
        >>> toolkit.dtype_policies.dtype_policy().name
        'float32'
    """
    return default_policy()


def set_dtype_policy(policy: Any) -> None:
    """Set the default policy of layers: a name or a DTypePolicy.

    Args:
        policy: a name, a DTypePolicy, or None for floatx.

    Example:
        >>> import toolkit
        >>> from toolkit import dtype_policies
        >>> dtype_policies.set_dtype_policy("mixed_bfloat16")
        >>> toolkit.layers.Dense(2).compute_dtype
        'bfloat16'
        >>> dtype_policies.set_dtype_policy(None)
    """
    if policy is not None and not isinstance(policy, (str, DTypePolicy)):
        raise ArgumentError(
            "set_dtype_policy: Invalid `policy` argument: expected a name such as "
            f"'mixed_float16' or a DTypePolicy; received {policy!r}"
        )
    set_default_policy(None if policy is None else get(policy))


def get(identifier: Any) -> DTypePolicy:
    """Return the policy for None (the global policy), a name, a dtype or a config.

    Args:
        identifier: None, a policy, a name, a dtype or a config.

    Returns:
        A DTypePolicy.

    Example:
        >>> import toolkit
        >>> toolkit.dtype_policies.get("mixed_bfloat16").compute_dtype
        'bfloat16'
    """
    if identifier is None:
        return dtype_policy()
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, dict):
        return deserialize(identifier)
    if isinstance(identifier, str):
        if "_" in identifier and identifier.startswith(MODES):
            return quantized_policy(identifier)
        return DTypePolicy(identifier)
    try:
        return DTypePolicy(dtypes.standardize(identifier))
    except ToolkitError as error:
        error.args = (f"Cannot interpret `dtype` argument. {error}",)
        raise


def serialize(dtype_policy: DTypePolicy) -> dict[str, Any]:
    """Return the policy as a dict of strings that `deserialize` reads.

    Args:
        dtype_policy: a policy.

    Returns:
        A dict of plain values.

    Example:
        >>> import toolkit
        >>> policy = toolkit.dtype_policies.DTypePolicy("mixed_bfloat16")
        >>> toolkit.dtype_policies.serialize(policy)["config"]
        {'name': 'mixed_bfloat16'}
    """
    return serialize_keras_object(dtype_policy)


def deserialize(config: dict[str, Any], custom_objects: Any = None) -> Any:
    """Build a policy from the result of `serialize`.

    Args:
        config: the result of `serialize`.
        custom_objects: a dict from names to classes that the config contains.

    Returns:
        The policy.

    Example:
        >>> import toolkit
        >>> policy = toolkit.dtype_policies.DTypePolicy("mixed_bfloat16")
        >>> config = toolkit.dtype_policies.serialize(policy)
        >>> toolkit.dtype_policies.deserialize(config).name
        'mixed_bfloat16'
    """
    if "class_name" in config and "config" in config:
        return deserialize_keras_object(config, custom_objects, module_objects=_BY_NAME)
    members = config.get("config", config)
    if not isinstance(members, dict) or "name" not in members:
        raise ArgumentError(
            "dtype_policies.deserialize: expected a dict with the policy's 'name'; "
            f"received {config!r}"
        )
    return DTypePolicy(members["name"])


__dir__ = module_dir(__name__)
