"""DTypePolicyMap: policies by the paths of layers; and the policies of arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from typing import Any

from toolkit import dtypes
from toolkit.dtype_policies.policy import (
    DTypePolicy,
    FloatDTypePolicy,
    default_policy,
)
from toolkit.dtype_policies.quantized import (
    MODES,
    AWQDTypePolicy,
    GPTQDTypePolicy,
    Int4DTypePolicy,
    QuantizedDTypePolicy,
    QuantizedFloat8DTypePolicy,
    quantized_policy,
)
from toolkit.errors import ArgumentError, ArgumentTypeError, ToolkitError
from toolkit.serialization import deserialize_keras_object, serialize_keras_object


class DTypePolicyMap(DTypePolicy, MutableMapping[str, DTypePolicy]):
    """Map from the paths of layers to policies, with a default, for nested layers.

    The lookup order is: the exact path, the only regular expression that matches the
    whole path, the default.

    Args:
        default_policy: a policy; the global one if None.
        policy_map: path or regular expression -> policy.

    Example:
        >>> from toolkit.dtype_policies import DTypePolicy, DTypePolicyMap
        >>> policies = DTypePolicyMap(DTypePolicy("float32"))
        >>> policies["encoder/.*"] = DTypePolicy("bfloat16")
        >>> policies["encoder/dense"].name, policies["decoder"].name
        ('bfloat16', 'float32')
    """

    def __init__(self, default_policy: Any = None, policy_map: Any = None) -> None:
        if isinstance(default_policy, DTypePolicyMap):
            raise ArgumentError(
                "DTypePolicyMap: `default_policy` cannot be a `DTypePolicyMap`"
            )
        if policy_map is not None and not isinstance(policy_map, dict):
            raise ArgumentTypeError(
                f"DTypePolicyMap: `policy_map` must be a dict; received {policy_map!r}"
            )
        self._default_argument = default_policy
        self._default = None if default_policy is None else _get_policy(default_policy)
        self._policies: dict[str, DTypePolicy] = policy_map or {}

    @property
    def default_policy(self) -> DTypePolicy:
        """Return the default policy: the argument, or the global policy."""
        return default_policy() if self._default is None else self._default

    @property
    def name(self) -> str:
        return f"map_{self.default_policy.name}"

    @property
    def compute_dtype(self) -> str:
        return self.default_policy.compute_dtype

    @property
    def variable_dtype(self) -> str:
        return self.default_policy.variable_dtype

    @property
    def quantization_mode(self) -> str | None:  # type: ignore[override]
        """Return the quantization mode of the default policy."""
        return self.default_policy.quantization_mode

    def __getitem__(self, key: str) -> DTypePolicy:
        if key in self._policies:
            return self._policies[key]
        matches = [pattern for pattern in self._policies if re.fullmatch(pattern, key)]
        if len(matches) > 1:
            raise ArgumentError(
                f"DTypePolicyMap: Path '{key}' matches multiple dtype policy "
                f"specification keys: {matches}; expected at most one"
            )
        return self._policies[matches[0]] if matches else self.default_policy

    def __setitem__(self, key: str, policy: Any) -> None:
        if key in self._policies:
            raise ArgumentError(
                f"DTypePolicyMap: {key} already exist in the DTypePolicyMap with the "
                f"value {self._policies[key]}; delete it first"
            )
        self._policies[key] = _get_policy(policy)

    def __delitem__(self, key: str) -> None:
        del self._policies[key]

    def __contains__(self, key: object) -> bool:
        return key in self._policies

    def __len__(self) -> int:
        return len(self._policies)

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypePolicyMap) and (
            (self._default_argument, self._policies)
            == (other._default_argument, other._policies)
        )

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain values."""
        return {
            "default_policy": serialize_keras_object(self._default_argument),
            "policy_map": serialize_keras_object(self._policies),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> DTypePolicyMap:
        """Build a map from the result of `get_config`.

        Args:
            config: the result of `get_config`.
            custom_objects: a dict from names to classes that the config contains.

        Returns:
            The map.
        """
        return cls(
            **{
                key: deserialize_keras_object(value, custom_objects)
                for key, value in config.items()
            }
        )

    def __repr__(self) -> str:
        mapping = [(key, policy.name) for key, policy in self._policies.items()]
        default = self.default_policy.name
        return (
            f"<DTypePolicyMap at {hex(id(self))} default_policy={default}, "
            f"mapping={mapping}>"
        )


def _get_policy(identifier: Any) -> DTypePolicy:
    """Return `dtype_policies.get(identifier)`, but None stays None."""
    try:
        return get(identifier)
    except (ValueError, TypeError) as error:
        raise ArgumentError(
            "DTypePolicyMap: Cannot interpret the assigned value by "
            f"`keras.dtype_policies.get`; received {identifier!r} ({error})"
        ) from error


_BY_NAME = {
    cls.__name__: cls
    for cls in (
        *(AWQDTypePolicy, DTypePolicy, DTypePolicyMap, FloatDTypePolicy),
        *(GPTQDTypePolicy, Int4DTypePolicy, QuantizedDTypePolicy),
        QuantizedFloat8DTypePolicy,
    )
}


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
        return default_policy()
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
