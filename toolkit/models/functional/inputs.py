"""Inputs of functional models: order, checks and casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes, tree
from toolkit.console.frames import warn
from toolkit.core.composites import Composite
from toolkit.core.convert import convert_input
from toolkit.core.masks import mask_of, set_mask
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers import InputSpec
from toolkit.models.functional.symbols import FunctionalSymbols
from toolkit.ops.symbolic import KerasTensor, is_symbolic


class FunctionalInputs(FunctionalSymbols):
    """Part of a functional model that processes its inputs."""

    _kind = "Functional"  # the name in messages
    _is_strict = True  # whether inputs must have the shape of their symbols
    _keeps_integers = False  # whether integers keep their dtype for a floating symbol
    name: str
    _input_spec: Any
    _last_fit: Any

    @property
    def input_spec(self) -> Any:
        """Return the spec that was set, or an InputSpec for each input symbol."""
        if self._input_spec is not None:
            return self._input_spec
        inputs = self._inputs_struct
        if isinstance(inputs, dict):
            if not all(map(is_symbolic, inputs.values())):
                return None
            return [_spec_of(inputs[key], key) for key in tree.keys_of(inputs)]
        return [_spec_of(x, x.name) for x in self._inputs]

    @input_spec.setter
    def input_spec(self, value: Any) -> None:
        self._input_spec, self._last_fit = value, None

    def _standardize(self, inputs: Any) -> list[Any]:
        """Check the inputs; return tensors in the order of `self.inputs`."""
        flat = self._ordered(inputs)
        is_nested = len(flat) > 1 or isinstance(inputs, dict)
        if is_nested and not _has_same_structure(self._inputs_struct, inputs):
            warn(self._structure_message(inputs))
        return [
            self._standardize_one(x, symbol)
            for x, symbol in zip(flat, self._inputs, strict=True)
        ]

    def _ordered(self, inputs: Any) -> list[Any]:
        struct = self._inputs_struct
        if type(inputs) is Tensor and len(self._inputs) == 1:
            return [inputs]
        if isinstance(inputs, dict):
            if isinstance(struct, dict):
                flat = _pick(struct, inputs)
            elif all(x.name in inputs for x in self._inputs):
                flat = tree.flatten([inputs[x.name] for x in self._inputs])
            else:
                flat = None
        elif isinstance(struct, dict) and list(struct) != tree.keys_of(struct):
            flat = None  # the order of a list is ambiguous
        else:
            flat = tree.flatten(inputs)
        if flat is None or len(flat) != len(self._inputs):
            raise ArgumentError(self._structure_message(inputs))
        return flat

    def _path_of(self, symbol: KerasTensor) -> str:
        """Return the path of an input in the structure of all, as in "images.left"."""
        for path, leaf in tree.flatten_with_path(self._inputs_struct):
            if leaf is symbol:
                return ".".join(map(str, path))
        return ""

    def _structure_message(self, inputs: Any) -> str:
        """Return the message for inputs in a wrong structure."""
        expected = tree.map_structure(lambda x: x.name, self._inputs_struct)
        structure = f"{len(self._inputs)} input(s), {expected!r}"
        if isinstance(expected, dict):
            structure = f"named input(s) with keys {list(expected)}"
            if any(key != name for key, name in expected.items()):
                structure += f", {expected!r}"
        keys = ""
        if isinstance(expected, dict) and isinstance(inputs, dict):
            absent = [key for key in expected if key not in inputs]
            unknown = [key for key in inputs if key not in expected]
            keys += f"; missing: {', '.join(map(repr, absent))}" if absent else ""
            keys += f"; unexpected: {', '.join(map(repr, unknown))}" if unknown else ""
        return (
            "The structure of `inputs` doesn't match the expected structure: "
            f"{self._kind} {self.name!r} expects {structure}; received "
            f"{tree.map_structure(_brief, inputs)!r}{keys}"
        )

    def _standardize_one(self, x: Any, symbol: KerasTensor) -> Any:
        if type(x) is Tensor and x.dtype == symbol.dtype and x.ndim == symbol.ndim:
            if x.shape[1:] == symbol.shape[1:]:
                return x
        if x is None:
            layer = symbol._keras_history.operation  # type: ignore[union-attr]
            if not getattr(layer, "optional", False):
                raise ArgumentError(
                    f"{self._kind} {self.name!r}: the input {symbol.name!r} is not "
                    "optional; received None"
                )
            return None
        if isinstance(x, Composite):
            return x.as_batch()
        mask = mask_of(x)
        dtype = getattr(x, "dtype", None) if self._keeps_integers else None
        keeps_dtype = dtype is not None and dtypes.is_integer(str(dtype))
        target = str(dtype) if keeps_dtype else symbol.dtype
        name = symbol.name if len(self._inputs) > 1 else "x"
        tensor = convert_input(x, target, name)
        rank, expected = tensor.ndim, symbol.ndim
        if rank == expected + 1 and tensor.shape[-1] == 1:
            tensor = tensor[..., 0]
        elif rank == expected - 1 and symbol.shape[-1] == 1:
            tensor = tensor[..., None]
        if tensor.ndim != expected or (self._is_strict and not _fits(tensor, symbol)):
            raise ShapeError(self._shape_message(x, symbol))
        if mask is not None and tensor is not x:
            set_mask(tensor, mask)
        return tensor

    def _explain(self, x: Any, error: ShapeError) -> None:
        """Prefix an error's message with the shape of the only input, if wrong."""
        (symbol,) = self._inputs
        if hasattr(x, "shape") and not _fits(x, symbol) and not self._is_strict:
            if self._shape_message(x, symbol) not in str(error):
                error.args = (f"{self._shape_message(x, symbol)}: {error}",)

    def _shape_message(self, x: Any, symbol: KerasTensor) -> str:
        """Return the message for an input of a wrong shape."""
        shape = tuple(x.shape) if hasattr(x, "shape") else np.shape(x)
        return (
            f"{self._kind} {self.name!r}: input with name {symbol.name!r} and path "
            f"{self._path_of(symbol)!r}: expected shape={symbol.shape}, found "
            f"shape={shape}{_fix_of_shape(shape, symbol.shape)}"
        )


def _spec_of(symbol: KerasTensor, name: str) -> InputSpec:
    layer = symbol._keras_history.operation  # type: ignore[union-attr]
    return InputSpec(
        shape=(None, *symbol.shape[1:]),
        name=name,
        optional=getattr(layer, "optional", False),
        allow_last_axis_squeeze=True,
    )


def _fix_of_shape(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> str:
    """Return the likely fix for data of another shape than an Input, or ""."""
    sample = expected[1:]
    if not shape:
        return "; pass an array with a batch axis, such as np.array([x])"
    if len(shape) == len(expected) - 1:
        fixes = []
        if _fit(shape, sample):
            fixes.append(
                "the data has no batch axis: add .batch(32) to a data set, or pass "
                "x[None] for one sample"
            )
        if len(sample) > 1 and _fit(shape[1:], sample[1:]):
            fixes.append(
                "the shape of an Input has no batch axis: if its first extent is the "
                f"number of samples, use Input({sample[1:]})"
            )
        if len(shape) > 1 and not fixes and _fit(shape[1:], sample[:-1]):
            fixes.append(f"add the last axis to the data: x[..., None] for {sample}")
        return f"; {'; or '.join(fixes)}" if fixes else ""
    if len(shape) == len(expected):
        return f"; each sample has the shape {shape[1:]}, the Input has {sample}"
    return ""


def _fit(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    """Return whether extents match; None matches all."""
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(m in (None, n) for n, m in pairs)


def _fits(x: Any, symbol: KerasTensor) -> bool:
    """Return whether all extents except the batch size match."""
    pairs = zip(x.shape[1:], symbol.shape[1:], strict=False)
    return len(x.shape) == symbol.ndim and all(n in (None, m) for m, n in pairs)


def _pick(expected: dict[Any, Any], received: dict[Any, Any]) -> list[Any] | None:
    """Return the leaves of a dict at the keys of `expected`; None if incomplete."""
    if not set(expected) <= set(received):
        return None
    selected = {key: received[key] for key in expected}
    try:
        return tree.flatten_up_to(expected, selected)
    except ArgumentError:
        return None


def _has_same_structure(expected: Any, received: Any) -> bool:
    """Return whether inputs are nested as expected; lists match tuples.

    A dict also matches a flat list of inputs, by name.
    """
    if isinstance(expected, dict):
        return (
            isinstance(received, dict)
            and expected.keys() == received.keys()
            and all(
                _has_same_structure(expected[key], received[key]) for key in expected
            )
        )
    if isinstance(expected, (list, tuple)):
        if isinstance(received, dict):
            return True
        return (
            isinstance(received, (list, tuple))
            and len(expected) == len(received)
            and all(map(_has_same_structure, expected, received))
        )
    if isinstance(received, (list, tuple)):  # a list of numbers is an array
        return not any(hasattr(x, "shape") for x in tree.flatten(received))
    return True


def _brief(leaf: Any) -> Any:
    shape = getattr(leaf, "shape", None)
    return leaf if shape is None else f"tensor of shape {tuple(shape)}"
