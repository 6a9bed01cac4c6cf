"""Clones of models: the same configs, different weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import tree
from toolkit.errors import ArgumentError
from toolkit.layers import Input, InputLayer
from toolkit.layers.layer import Layer
from toolkit.models.functional.model import Functional, has_functional_constructor
from toolkit.models.sequential import Sequential
from toolkit.ops.symbolic import FunctionOperation, is_symbolic
from toolkit.serialization import (
    ObjectSharingScope,
    deserialize_keras_object,
    serialize_keras_object,
)
from toolkit.serialization.sharing import (
    find_shared_object,
    mark_config,
    store_shared_object,
    suspend_marks,
)

Clone = Callable[[Any], Any]


def clone_model(
    model: Any,
    input_tensors: Any = None,
    clone_function: Clone | None = None,
    call_function: Callable[..., Any] | None = None,
    recursive: bool = False,
    **kwargs: Any,
) -> Any:
    """Return a model like `model`, with new layers and new weights.

    Args:
        model: a sequential or functional model; for a subclass, its config is used.
        input_tensors: symbolic inputs of the new model, in the structure of the model's
            inputs; new ones if None.
        clone_function: a function from a layer to the new model's layer; by default it
            builds a layer from the config.
        call_function: for functional models: a function of each layer and the arguments
            of its call that returns the outputs.
        recursive: whether to also clone nested models layer by layer.

    Returns:
        A model of the same class, with new weights.

    Example:
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> twin = toolkit.models.clone_model(model)
        >>> twin.output_shape, twin.layers[0] is model.layers[0]
        ((None, 2), False)
    """
    cache = kwargs.pop("cache", None)
    if kwargs:
        raise ArgumentError(f"clone_model: unknown arguments {', '.join(kwargs)}")
    if cache is None:
        with ObjectSharingScope(marks_all=True):
            return clone_model(
                model, input_tensors, clone_function, call_function, recursive, cache={}
            )
    cloned = _clone_once(
        clone_function or _clone_layer, call_function, recursive, cache
    )
    if isinstance(model, Sequential):
        if call_function is not None:
            raise ArgumentError(
                "clone_model: `call_function` needs recorded layer calls, and a "
                f"Sequential has none; received {model!r}"
            )
        twin = _clone_sequential(model, input_tensors, cloned)
    elif isinstance(model, Functional):
        twin = _clone_functional(model, input_tensors, cloned, call_function)
    else:
        arguments = (clone_function, input_tensors, call_function)
        if any(argument is not None for argument in arguments):
            raise ArgumentError(
                "clone_model: `clone_function`, `input_tensors` and `call_function` "
                "need a sequential or functional model; received "
                f"{type(model).__name__}. Other models are cloned by their config "
                "only"
            )
        return deserialize_keras_object(
            serialize_keras_object(model), {type(model).__name__: type(model)}
        )
    if model.compiled:
        twin.compile_from_config(model.get_compile_config())
    return twin


def _clone_layer(layer: Any) -> Any:
    """Return a layer with the same config; shared sublayers have one clone."""
    config = {"class_name": type(layer).__name__, "config": layer.get_config()}
    mark_config(layer, config)
    clone = find_shared_object(config)
    if clone is None:
        with suspend_marks():
            clone = type(layer).from_config(config["config"])
        store_shared_object(clone, config)
    return clone


def _clone_once(
    clone_function: Clone, call_function: Any, recursive: bool, cache: dict[int, Any]
) -> Clone:
    """Return a function that clones each layer once, optionally recursively."""

    def clone(layer: Any) -> Any:
        if id(layer) not in cache:
            if isinstance(layer, FunctionOperation):
                cloned: Any = FunctionOperation(layer.function, layer.name)
            elif recursive and isinstance(layer, (Sequential, Functional)):
                calls = None if isinstance(layer, Sequential) else call_function
                cloned = clone_model(
                    layer, None, clone_function, calls, recursive, cache=cache
                )
            else:
                cloned = clone_function(layer)
            cache[id(layer)] = cloned
        return cache[id(layer)]

    return clone


def _clone_sequential(model: Sequential, input_tensors: Any, clone: Clone) -> Any:
    layers: list[Any] = [clone(layer) for layer in model.layers]
    first = model._layers[0] if model._layers else None
    if not isinstance(first, InputLayer):
        first = None
    if input_tensors is not None:
        tensors = tree.flatten(input_tensors)
        if len(tensors) != 1 or not is_symbolic(tensors[0]):
            raise ArgumentError(
                "clone_model: Argument `input_tensors` must contain a single tensor, "
                f"a KerasTensor; received {input_tensors!r}"
            )
        layers = [Input(tensor=tensors[0], name=first.name if first else None), *layers]
    elif first is not None:
        layers = [InputLayer.from_config(first.get_config()), *layers]
    twin = Sequential(layers, name=model.name, trainable=model.trainable)
    if model.built and not twin.built:  # calls without symbols built the model
        twin.build_from_config(model.get_build_config())
    return twin


def _clone_functional(
    model: Functional, input_tensors: Any, clone: Clone, call_function: Any
) -> Any:
    if input_tensors is None:
        inputs = tree.map_structure(_like, model.input)
    else:
        inputs = _matching(input_tensors, model)
    outputs = _replay(model, inputs, clone, call_function)
    cls = type(model) if has_functional_constructor(type(model)) else Functional
    return cls(inputs, outputs, name=model.name)


def _like(symbol: Any) -> Any:
    layer = symbol._keras_history.operation
    optional = getattr(layer, "optional", False)
    return Input(
        batch_shape=symbol.shape, dtype=symbol.dtype, name=layer.name, optional=optional
    )


def _matching(input_tensors: Any, model: Functional) -> Any:
    """Return `input_tensors` in the structure of the model's inputs."""
    leaves = tree.flatten(input_tensors)
    if not all(map(is_symbolic, leaves)):
        raise ArgumentError(
            "clone_model: All entries in `input_tensors` must be KerasTensors; "
            f"received {input_tensors!r}"
        )
    arguments, expected = (tree.structure_of(x) for x in (input_tensors, model.input))
    if arguments == expected:
        return input_tensors
    if len(leaves) == len(model.inputs) == 1:
        return tree.pack_sequence_as(model.input, leaves)
    raise ArgumentError(
        "clone_model: `input_tensors` must have the same structure as model.input, "
        f"{expected!r}; received {arguments!r}"
    )


def _replay(model: Functional, inputs: Any, clone: Clone, call: Any) -> Any:
    """Repeat the calls of a model's graph with clones, on other symbols."""
    fresh = dict(zip(map(id, model.inputs), tree.flatten(inputs), strict=True))

    def substitute(leaf: Any) -> Any:
        return fresh[id(leaf)] if is_symbolic(leaf) else leaf

    for node in model._topology.nodes:
        args, kwargs = tree.map_structure(substitute, node.attrs["arguments"])
        operation: Any = clone(node.op)
        if call is not None and isinstance(operation, Layer):
            outputs = call(operation, *args, **kwargs)
        else:
            outputs = operation(*args, **kwargs)
        symbols = tree.flatten(node.attrs["outputs"])
        for symbol, cloned in zip(symbols, tree.flatten(outputs), strict=True):
            fresh[id(symbol)] = cloned
    return tree.map_structure(substitute, model.output)
