"""Dtype policies: the dtypes of a layer's computation and of its weights."""

from __future__ import annotations

from typing import Any

from toolkit.definitions.namespaces import module_dir
from toolkit.dtype_policies.policy import (
    DTypePolicy,
    FloatDTypePolicy,
    default_policy,
    set_default_policy,
)
from toolkit.dtype_policies.policy_map import DTypePolicyMap, deserialize, get
from toolkit.dtype_policies.quantized import (
    AWQDTypePolicy,
    GPTQDTypePolicy,
    Int4DTypePolicy,
    QuantizedDTypePolicy,
    QuantizedFloat8DTypePolicy,
)
from toolkit.errors import ArgumentError
from toolkit.serialization import serialize_keras_object

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


__dir__ = module_dir(__name__)
