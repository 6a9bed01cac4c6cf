"""Static arguments of traced functions, and specs that arguments must match."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from inspect import Signature
from typing import Any, Protocol

from toolkit import dtypes, tree
from toolkit.core.convert import convert, is_strings
from toolkit.core.strings import StringTensor
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentTypeError, SignatureError
from toolkit.type_aliases import DTypeLike


class HasSpec(Protocol):
    """Tensor or spec with a shape and a dtype."""

    @property
    def shape(self) -> Sequence[int | None]: ...

    @property
    def dtype(self) -> DTypeLike: ...


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))


class Parameters:
    """The parameters of a Python function.

    Args:
        function: the function.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    @cached_property
    def _signature(self) -> Signature | None:
        """Return the signature of the function, or None if Python has none."""
        try:
            return inspect.signature(self._function, follow_wrapped=False)
        except (TypeError, ValueError):
            return None

    @cached_property
    def count(self) -> int:
        """Return the number of named arguments of the function."""
        parameters = self._signature.parameters if self._signature else {}
        return sum(p.kind not in _VARIADIC for p in parameters.values())

    def bind(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Any, Any]:
        """Return arguments in one form: by position where that is possible.

        Defaults that are plain values are filled in, so that calls with and without
        them share a trace.
        """
        if self._signature is None:
            return args, kwargs
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:  # the function raises its own error
            return args, kwargs
        for name, parameter in self._signature.parameters.items():
            if name not in bound.arguments and isinstance(
                parameter.default, _PLAIN_TYPES
            ):
                bound.arguments[name] = parameter.default
        ordered_names = [n for n in self._signature.parameters if n in bound.arguments]
        bound.arguments = {name: bound.arguments[name] for name in ordered_names}
        return bound.args, bound.kwargs


def static_key(leaf: object) -> tuple[type, object]:
    """Return a key for a static argument:

    Python values by value, all else by identity.
    """
    if leaf is None or isinstance(leaf, (bool, int, float, str, bytes)):
        return type(leaf), repr(leaf)
    return type(leaf), id(leaf)


def check_signature(input_signature: object) -> None:
    """Raise unless an input_signature is None, or a nest of specs."""
    for leaf in tree.flatten(input_signature):
        if leaf is None and input_signature is None:
            return
        is_spec = hasattr(leaf, "dtype") and hasattr(leaf, "shape")
        if not is_spec or isinstance(leaf, type):
            raise ArgumentTypeError(
                "function: expected input_signature to be a list of specs, one for "
                "each argument, such as [TensorSpec((None, 3), 'float32')] of "
                f"toolkit.data; received {input_signature!r}"
            )


def join_lists(args: tuple[object, ...], input_signature: object) -> tuple[object, ...]:
    """Return the arguments, with a tensor for each list that has a single spec."""
    if not isinstance(input_signature, (list, tuple)):
        return args
    if len(args) != len(input_signature):
        return args
    return tuple(
        as_argument(x)
        if hasattr(spec, "shape") and isinstance(x, (list, tuple)) and _is_plain(x)
        else x
        for x, spec in zip(args, input_signature, strict=True)
    )


def as_argument(value: Any) -> Tensor | StringTensor:
    """Return an argument as a tensor of numbers or of strings."""
    first = next(iter(tree.flatten(value)), None)
    is_text = isinstance(first, (str, bytes)) or is_strings(value)
    return StringTensor(value) if is_text else convert(value)


def _is_plain(values: object) -> bool:
    """Return whether nested lists contain only numbers or strings."""
    return all(isinstance(x, (int, float, str, bytes)) for x in tree.flatten(values))


def check_match(
    name: str, tensors: Sequence[HasSpec], specs: Sequence[HasSpec]
) -> None:
    """Raise unless the tensors of a call fit the specs of an input_signature."""
    is_match = len(specs) == len(tensors) and all(
        matches_spec(x, spec) for x, spec in zip(tensors, specs, strict=True)
    )
    if not is_match:
        raise SignatureError(
            f"{name}: expected arguments ({_describe_specs(specs)}), as in its "
            f"input_signature; received ({_describe_specs(tensors)})"
        )


def _describe_specs(specs: Sequence[HasSpec]) -> str:
    """Return the dtypes and shapes of specs or tensors, for a message."""
    return ", ".join(f"{dtypes.standardize(s.dtype)}{list(s.shape)}" for s in specs)


def matches_spec(x: HasSpec, expected: HasSpec) -> bool:
    """Return whether a tensor fits an expected spec; None fits any extent."""
    if len(x.shape) != len(expected.shape) or x.dtype != dtypes.standardize(
        expected.dtype
    ):
        return False
    extents = zip(x.shape, expected.shape, strict=True)
    return all(n is None or m == n for m, n in extents)
