"""DTypePolicy: the dtype of the computation and the dtype of the weights."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes, ops, settings
from toolkit.errors import ArgumentError, DTypeError, ToolkitError
from toolkit.ops.symbolic import is_symbolic

_MIXED_DTYPES = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}


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

    quantization_mode: str | None = None

    def __init__(self, name: str | None = None) -> None:
        self._name: Any = default_policy().name if name is None else name
        self._compute_dtype, self._variable_dtype = parse_policy_name(self._name)

    @property
    def name(self) -> str:
        """Return the name of the policy."""
        return self._name

    @property
    def compute_dtype(self) -> str:
        """Return the dtype of the computation."""
        return self._compute_dtype

    @property
    def variable_dtype(self) -> str:
        """Return the dtype of the weights."""
        return self._variable_dtype

    def convert_input(self, x: Any, autocast: bool, dtype: Any) -> Any:
        """Return a tensor, symbol or array as a tensor; cast it if it is floating.

        Args:
            x: an input of a layer; any other type is returned unchanged.
            autocast: whether to cast.
            dtype: the dtype to cast to.
        """
        if not hasattr(x, "dtype") and not hasattr(x, "__array__"):
            return x
        tensor = x if is_symbolic(x) else ops.convert_to_tensor(x)
        dtype = dtypes.standardize(dtype)
        if autocast and dtypes.is_float(tensor.dtype) and tensor.dtype != dtype:
            return ops.cast(tensor, dtype)
        return tensor

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain values."""
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DTypePolicy:
        """Build a policy from the result of `get_config`.

        Args:
            config: the result of `get_config`.

        Returns:
            The policy.
        """
        return cls(**config)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DTypePolicy):
            return False
        if type(self) in _FLOAT_POLICIES:
            return type(other) in _FLOAT_POLICIES and self._name == other._name
        return type(other) is type(self) and self.get_config() == other.get_config()

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        policy_class = DTypePolicy if type(self) in _FLOAT_POLICIES else type(self)
        return f'<{policy_class.__name__} "{self._name}">'


class FloatDTypePolicy(DTypePolicy):
    """DTypePolicy under an older name.

    Args:
        name: as for `DTypePolicy`.

    Example:
        >>> from toolkit.dtype_policies import FloatDTypePolicy
        >>> FloatDTypePolicy("float32").name
        'float32'
    """


_FLOAT_POLICIES = (DTypePolicy, FloatDTypePolicy)


def parse_policy_name(name: Any) -> tuple[str, str]:
    """Return the dtypes of computation and weights for a name."""
    if not isinstance(name, str):
        raise DTypeError(
            "DTypePolicy: 'name' must be a string such as 'mixed_float16'; "
            f"received {name!r} of type {type(name).__name__}"
        )
    if name in _MIXED_DTYPES:
        return _MIXED_DTYPES[name], "float32"
    try:
        dtype = dtypes.standardize(name)
    except ToolkitError:
        choices = ", ".join((*dtypes.DTYPES, *_MIXED_DTYPES))
        raise ArgumentError(
            f"DTypePolicy: Cannot convert {name!r} to a policy; expected one of "
            f"{choices}; received {name!r}"
        ) from None
    return dtype, dtype


_global_policy: DTypePolicy | None = None


def default_policy() -> DTypePolicy:
    """Return the default policy of layers: floatx unless set."""
    return DTypePolicy(settings.floatx()) if _global_policy is None else _global_policy


def set_default_policy(policy: DTypePolicy | None) -> None:
    """Set the default policy of layers; None means floatx."""
    global _global_policy
    _global_policy = policy
