"""Dtype policies: which dtype a layer computes in, and which its weights have."""

from __future__ import annotations

from typing import Any

from toolkit import config, dtypes
from toolkit.errors import ArgumentError, DTypeError, ToolkitError

_MIXED = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}


class DTypePolicy:
    """The dtypes of a layer's computation and of its weights.

    Args:
        name: a dtype ("float32": both), "mixed_float16" or "mixed_bfloat16" (compute
            in 16 bits, keep the weights in float32). None: the global policy.

    Example:
        >>> from toolkit.dtype_policies import DTypePolicy
        >>> policy = DTypePolicy("mixed_bfloat16")
        >>> policy.compute_dtype, policy.variable_dtype
        ('bfloat16', 'float32')
    """

    quantization_mode = None

    def __init__(self, name: str | None = None) -> None:
        self.name: str = dtype_policy().name if name is None else name
        self.compute_dtype, self.variable_dtype = _parse(self.name)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal policy."""
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DTypePolicy:
        """The policy that `get_config` described."""
        return cls(**config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypePolicy) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f'<DTypePolicy "{self.name}">'


def _parse(name: Any) -> tuple[str, str]:
    if not isinstance(name, str):
        raise DTypeError(
            "DTypePolicy: expected a name such as 'mixed_float16'; "
            f"received {name!r} of type {type(name).__name__}"
        )
    if name in _MIXED:
        return _MIXED[name], "float32"
    try:
        dtype = dtypes.standardize(name)
    except ToolkitError:
        choices = ", ".join((*dtypes.DTYPES, *_MIXED))
        raise ArgumentError(
            f"DTypePolicy: expected one of {choices}; received {name!r}"
        ) from None
    return dtype, dtype


_chosen: DTypePolicy | None = None


def dtype_policy() -> DTypePolicy:
    """The policy of layers that are given none: floatx unless set."""
    return DTypePolicy(config.floatx()) if _chosen is None else _chosen


def set_dtype_policy(policy: Any) -> None:
    """Set the policy of layers that are given none: a name or a DTypePolicy.

    Example:
        >>> import toolkit
        >>> from toolkit import dtype_policies
        >>> dtype_policies.set_dtype_policy("mixed_bfloat16")
        >>> toolkit.layers.Dense(2).compute_dtype
        'bfloat16'
        >>> dtype_policies.set_dtype_policy(None)
    """
    global _chosen
    _chosen = None if policy is None else get(policy)


def get(identifier: Any) -> DTypePolicy:
    """The policy meant by None (the global one), a name, a dtype or a config."""
    if identifier is None:
        return dtype_policy()
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, dict):
        return deserialize(identifier)
    if isinstance(identifier, str):
        return DTypePolicy(identifier)
    return DTypePolicy(dtypes.standardize(identifier))


def serialize(policy: DTypePolicy) -> dict[str, Any]:
    """The policy as a dict of strings that `deserialize` reads."""
    return {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": policy.get_config(),
        "registered_name": None,
    }


def deserialize(config: dict[str, Any]) -> DTypePolicy:
    """The policy that `serialize` described."""
    members = config.get("config", config)
    if not isinstance(members, dict) or "name" not in members:
        raise ArgumentError(
            "dtype_policies.deserialize: expected a dict with the policy's 'name'; "
            f"received {config!r}"
        )
    return DTypePolicy(members["name"])
