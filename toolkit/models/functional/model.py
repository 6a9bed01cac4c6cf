"""Functional: a model defined by a symbolic graph, replayed on tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from toolkit import tree
from toolkit.console.frames import warn
from toolkit.core.masks import mask_of, set_mask
from toolkit.core.naming import current_path
from toolkit.errors import ArgumentError
from toolkit.ir import Node
from toolkit.layers import InputLayer
from toolkit.layers.layer import Layer
from toolkit.layers.masks import unmasked
from toolkit.layers.tracking import no_tracking
from toolkit.models.functional.config import functional_config, functional_from_config
from toolkit.models.functional.inputs import FunctionalInputs
from toolkit.models.functional.node_views import NodeView, nodes_by_depth
from toolkit.models.functional.op_masks import call_with_masks
from toolkit.models.functional.topology import Topology, is_input, replace_inputs
from toolkit.models.model import RESERVED, Model
from toolkit.ops.symbolic import (
    FunctionOperation,
    KerasTensor,
    infer,
    is_symbolic,
    without_masks,
)
from toolkit.type_aliases import Shape

Values = list[Any]


class Step(NamedTuple):
    """One call of the plan, which reads and writes values by slot."""

    operation: Any
    arguments: Callable[[Values], tuple[Any, dict[str, Any]]]
    needs_training: bool  # whether the layer receives `training` from the model's call
    outputs: list[int | None]


class Functional(FunctionalInputs, Model):
    """Model defined by a graph of layer calls; `Model(inputs, outputs)` creates it.

    Args:
        inputs: a symbolic tensor from `Input`, or a nest of them, or of intermediate
            symbols.
        outputs: a symbolic tensor computed from the inputs, or a nest of them.
        name: the name; generated from the class name if None.
        **kwargs: `trainable`, `dtype` and other arguments of layers.

    Example:
        >>> import toolkit
        >>> x = toolkit.Input((4,))
        >>> model = toolkit.Model(x, toolkit.layers.Dense(2)(x))
        >>> type(model).__name__, model.output_shape
        ('Functional', (None, 2))
    """

    _describes_parts = True

    # Each input is converted to the dtype of its symbol instead.
    _convert_input_args = _casts_inputs = False

    def __init__(
        self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any
    ) -> None:
        _check_symbols("inputs", inputs)
        _check_symbols("outputs", outputs)
        trainable = kwargs.pop("trainable", None)
        super().__init__(name=name, **kwargs)
        flat_inputs = tree.flatten(inputs)
        if not all(map(is_input, flat_inputs)):
            flat_inputs, outputs = replace_inputs(flat_inputs, outputs, _fresh_input)
            inputs = tree.pack_sequence_as(inputs, flat_inputs)
        _warn_of_names(inputs)
        with no_tracking():
            self._inputs_struct = tree.copy_containers(inputs)
            self._outputs_struct = tree.copy_containers(outputs)
            self._inputs: list[KerasTensor] = flat_inputs
            self._outputs: list[KerasTensor] = tree.flatten(outputs)
            self._topology = Topology(self._inputs, self._outputs, outputs)
            self._plan, self._result_slots, self._slots = self._make_plan()
            self._has_one_output = is_symbolic(_unpack(outputs))
        self._operations = self._topology.operations
        histories: list[Any] = [x._keras_history for x in self._outputs]
        self.output_names: list[str] = [history.operation.name for history in histories]
        self.built = True
        self._path = current_path(self.name)
        self._computes_mask = type(self).compute_mask is not Functional.compute_mask
        self._keeps_masks = not self._computes_mask
        self.supports_masking = True
        self._allow_non_tensor_positional_args = True
        if trainable is not None:  # None keeps the layers' flags
            self._trainable = bool(trainable)

    # --- graph ------------------------------------------------------------------------

    @property
    def layers(self) -> list[Layer]:
        """Return the layers in order, from inputs to outputs."""
        return [op for op in self._operations if isinstance(op, Layer)]

    @layers.setter
    def layers(self, value: Any) -> None:
        raise AttributeError(RESERVED)

    @property
    def operations(self) -> list[Any]:
        """Return the layers and ops in order, from inputs to outputs."""
        return list(self._operations)

    @property
    def _nodes_by_depth(self) -> dict[int, list[NodeView]]:
        """Return depth -> nodes, which libraries for Keras read."""
        return nodes_by_depth(self._topology.depths)

    def _make_plan(self) -> tuple[list[Step], list[int], int]:
        """Return the calls in order, the outputs' slots, and the number of slots."""
        slots: dict[int, int] = {}
        for symbol in self._inputs:
            slots.setdefault(id(symbol), len(slots))
        plan = []
        for node in self._topology.nodes:
            arguments = _argument_filler(node, slots)
            for symbol in node.outputs:
                slots.setdefault(id(symbol), len(slots))
            leaves = tree.flatten(node.attrs["outputs"])
            outputs = [slots[id(x)] if is_symbolic(x) else None for x in leaves]
            operation = node.op
            if isinstance(operation, FunctionOperation):
                operation = partial(call_with_masks, operation)
            plan.append(Step(operation, arguments, _needs_training(node), outputs))
        return plan, [slots[id(x)] for x in self._outputs], len(slots)

    # --- calls ------------------------------------------------------------------------

    def call(
        self,
        inputs: Any,
        training: bool | None = None,
        mask: Any = None,
    ) -> Any:
        """Replay the recorded calls on `inputs`.

        Args:
            inputs: tensors in the structure of the model's inputs.
            training: whether to run in training mode; None: the mode of the context.
            mask: masks of the inputs, or None.

        Returns:
            The outputs, in the structure of the model's outputs.
        """
        flat = self._standardize(inputs)
        masks = () if mask is None else tree.flatten(mask)
        for i, (x, its_mask) in enumerate(zip(flat, masks, strict=False)):
            if its_mask is not None and x is not None and mask_of(x) is not its_mask:
                flat[i] = unmasked(x)
                set_mask(flat[i], its_mask)
        values: Values = [*flat, *[None] * (self._slots - len(flat))]
        for operation, arguments, needs_training, slots in self._plan:
            args, kwargs = arguments(values)
            if needs_training and training is not None:
                kwargs = {**kwargs, "training": training}
            outputs = operation(*args, **kwargs)
            if len(slots) == 1 and not tree.is_nested(outputs):
                values[slots[0]] = outputs  # type: ignore[index]
                continue
            for slot, value in zip(slots, tree.flatten(outputs), strict=True):
                if slot is not None:
                    values[slot] = value
        results = [values[slot] for slot in self._result_slots]
        if self._has_one_output:
            return results[0]
        return _unpack(tree.pack_sequence_as(self._outputs_struct, results))

    def _output_symbols(self, batch_size: int) -> object:
        shapes = [x.shape[1:] for x in self._outputs]
        if type(self).call is not Functional.call or None in chain(*shapes):
            return None
        return tree.map_structure(
            lambda x: KerasTensor((batch_size, *x.shape[1:]), x.dtype),
            _unpack(self._outputs_struct),
        )

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return None: the sublayers attach masks to the outputs.

        Args:
            inputs: the inputs of the call.
            previous_mask: the masks of the inputs.
        """
        return None

    def compute_output_spec(
        self,
        inputs: Any,
        training: bool | None = None,
        mask: Any = None,
    ) -> Any:
        """Return the symbolic outputs of a call with these symbols.

        Args:
            inputs: symbolic tensors in the structure of the model's inputs.
            training: whether to run in training mode; None: the mode of the context.
            mask: masks of the inputs, or None.
        """
        symbols = self._ordered(inputs)
        narrowed = list(map(_narrowed, symbols, self._inputs))
        pairs = zip(narrowed, self._inputs, strict=True)
        if all(
            x.shape == symbol.shape and x.dtype == symbol.dtype for x, symbol in pairs
        ):
            return tree.map_structure(
                lambda x: KerasTensor(x.shape, x.dtype), _unpack(self._outputs_struct)
            )
        narrowed_by_id = dict(zip(map(id, symbols), narrowed, strict=True))
        inputs = tree.map_structure(lambda x: narrowed_by_id.get(id(x), x), inputs)
        arguments = {"training": training, "mask": mask}
        return without_masks(infer(self.call, (inputs,), arguments))

    def compute_output_shape(self, input_shape: Shape) -> Any:
        """Return the shape(s) of the output(s) for inputs of these shapes.

        Args:
            input_shape: the shape, or shapes, of the inputs; None for unknown extents.
        """
        shapes = [input_shape]
        if len(self._inputs) > 1 or not _is_shape(input_shape):
            shapes = _shapes_of(input_shape, self._inputs_struct)
        symbols = [
            KerasTensor(shape, symbol.dtype)
            for shape, symbol in zip(shapes, self._inputs, strict=True)
        ]
        packed = tree.pack_sequence_as(self._inputs_struct, symbols)
        return tree.map_structure(lambda x: x.shape, self.compute_output_spec(packed))

    # --- configuration ----------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Return the layers and their calls, in Keras 3's format."""
        if not has_functional_constructor(type(self)):
            return super().get_config()
        return functional_config(self)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Build a model from the result of `get_config`.

        Args:
            config: the result of `get_config`.
            custom_objects: a dict from names to classes or functions that the config
                contains.

        Returns:
            The model, with new weights.
        """
        if "input_layers" not in config or not has_functional_constructor(cls):
            return super().from_config(config, custom_objects)
        return functional_from_config(cls, config, custom_objects)


def has_functional_constructor(cls: type) -> bool:
    """Return whether inputs and outputs are enough to construct this class."""
    return cls.__init__ is Functional.__init__  # type: ignore[misc]


def _check_symbols(kind: str, structure: Any) -> None:
    leaves = tree.flatten(structure)
    if not leaves:
        raise ArgumentError(f"Model: expected at least one KerasTensor as `{kind}`")
    for leaf in leaves:
        if not is_symbolic(leaf):
            raise ArgumentError(
                f"Model: All `{kind}` values must be KerasTensors, symbols from "
                f"Input() and calls on them; received {leaf!r} of type "
                f"{type(leaf).__name__}"
            )


def _narrowed(x: Any, symbol: KerasTensor) -> Any:
    """Return a symbol with extents filled in from the model's input.

    The batch size stays unknown: a call accepts any.
    """
    if not is_symbolic(x) or x.ndim != symbol.ndim:
        return x
    pairs = zip(x.shape[1:], symbol.shape[1:], strict=True)
    shape = (*x.shape[:1], *(n if m is None else m for m, n in pairs))
    if shape == x.shape:
        return x
    narrowed = KerasTensor(shape, x.dtype)
    set_mask(narrowed, mask_of(x))
    return narrowed


def _warn_of_names(inputs: Any) -> None:
    for key, symbol in inputs.items() if isinstance(inputs, dict) else ():
        if is_symbolic(symbol) and symbol.name != key:
            warn(
                f"Model: the input under the key {key!r} is named {symbol.name!r}; "
                "give it the name of its key: Input(..., name=key)"
            )


def _fresh_input(symbol: KerasTensor) -> KerasTensor:
    layer = InputLayer(
        batch_shape=symbol.shape, dtype=symbol.dtype, name=f"{symbol.name}CLONE"
    )
    return layer.output


def _argument_filler(
    node: Node, slots: dict[int, int]
) -> Callable[[Values], tuple[Any, dict[str, Any]]]:
    """Return a picklable function from values to the arguments of a call."""
    args, kwargs = node.attrs["arguments"]
    if len(args) == 1 and is_symbolic(args[0]) and not kwargs:
        return partial(_fill_one, slots[id(args[0])])
    leaves = tree.flatten((args, kwargs))
    symbol_slots = [(i, slots[id(x)]) for i, x in enumerate(leaves) if is_symbolic(x)]
    constants = [None if is_symbolic(x) else x for x in leaves]
    return partial(_fill, (args, kwargs), constants, symbol_slots)


def _fill_one(slot: int, values: Values) -> tuple[Any, dict[str, Any]]:
    return (values[slot],), {}


def _fill(
    structure: Any,
    constants: Values,
    symbol_slots: list[tuple[int, int]],
    values: Values,
) -> tuple[Any, dict[str, Any]]:
    filled = list(constants)
    for i, slot in symbol_slots:
        filled[i] = values[slot]
    packed: tuple[Any, dict[str, Any]] = tree.pack_sequence_as(structure, filled)
    return packed


def _needs_training(node: Node) -> bool:
    """Return whether the layer accepts `training` and its recorded call has none."""
    info = getattr(node.op, "_info", None)
    if info is None or not info.takes_training:
        return False
    args, kwargs = node.attrs["arguments"]
    recorded = {**dict(zip(info.names, args, strict=False)), **kwargs}
    return recorded.get("training") is None


def _unpack(outputs: Any) -> Any:
    """Return the only output of a list or tuple of one."""
    if isinstance(outputs, (list, tuple)) and len(outputs) == 1:
        return outputs[0]
    return outputs


def _is_shape(value: Any) -> bool:
    return all(n is None or isinstance(n, int) for n in value)


def _shapes_of(shapes: Any, inputs: Any) -> list[Any]:
    """Return the shapes in a list, tuple or dict, in the order of the inputs."""
    if isinstance(shapes, dict):
        keys = tree.keys_of(inputs if isinstance(inputs, dict) else shapes)
        shapes = [shapes[key] for key in keys]
    return list(shapes)
