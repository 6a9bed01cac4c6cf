"""What a model computes for given inputs, as a graph, for those who write it down.

A model is traced for one set of sizes at a time: each extent that its inputs leave free
has a name, and a trace a number for each.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit import dtypes, tree
from toolkit.compiler.passes.rewriting import expand
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, NotBuiltError, UnsupportedError
from toolkit.ir import Graph, Spec
from toolkit.layers.call import map_shapes
from toolkit.layers.input_spec import InputSpec

BATCH = "batch"


@record
class ModelTensor:
    """An input or an output of a model.

    Attributes:
        name: by which a caller knows it.
        shape: extents; a name where the extent is free.
        dtype: the dtype's name.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def at(self, sizes: Mapping[str, int]) -> Spec:
        """The spec with a number for each free extent."""
        extents = (n if isinstance(n, int) else sizes[n] for n in self.shape)
        return Spec(extents, self.dtype)


@record
class Signature:
    """What a model is called with.

    Attributes:
        inputs: its tensors, in one list.
        structure: the arguments by position, and how tensors are nested in them.
    """

    inputs: Sequence[ModelTensor]
    structure: Any

    @property
    def free(self) -> list[str]:
        """The names of all free extents, the batch first."""
        extents = dict.fromkeys(n for x in self.inputs for n in x.shape)
        return sorted((n for n in extents if isinstance(n, str)), key=_batch_first)


def _batch_first(name: str) -> tuple[bool, str]:
    return name != BATCH, name


@record
class InferenceGraph:
    """One trace of a model.

    Attributes:
        graph: its inputs are those of the signature, then the Variables' values; its
            outputs are those of the model, then the new values of `written`.
        variables: those that are read, in the order of the graph's inputs.
        written: those that the model changes, such as the state of a stateful layer.
        names: of the model's outputs.
        structure: how the outputs are nested.
    """

    graph: Graph
    variables: Sequence[Variable]
    written: Sequence[Variable]
    names: Sequence[str]
    structure: Any


def signature_of(model: Any, input_signature: Any = None) -> Signature:
    """What a model is called with, from its symbols or the shapes it was built with.

    The first extent of each input that is free is `batch`; another free one of input i
    is `dim_{i}_{axis}`.

    Args:
        model: built.
        input_signature: instead: a list of the arguments of a call, with an InputSpec
            that has a shape, a symbol or an array for each tensor in them.

    Raises:
        NotBuiltError: if nothing says what the inputs are.
    """
    if input_signature is None:
        arguments = (_own_inputs(model),)
    else:
        arguments = _arguments(model, input_signature)
    leaves = tree.flatten(arguments)
    if not leaves:
        raise ArgumentError(
            f"{model.name}.export: expected an input_signature of one or more inputs; "
            f"received {input_signature!r}"
        )
    names = _names(leaves)
    inputs = [_tensor(model, i, x, names[i]) for i, x in enumerate(leaves)]
    return Signature(inputs, tree.structure_of(arguments))


def _arguments(model: Any, signature: Any) -> tuple[Any, ...]:
    """The arguments of a call, from a signature or from the only argument itself."""
    if not isinstance(signature, (list, tuple)):
        return (signature,)
    inputs = getattr(model, "inputs", None)
    if inputs is not None and len(inputs) == len(signature) > 1:
        return (list(signature),)  # models of symbols take one argument
    return tuple(signature)


def _own_inputs(model: Any) -> Any:
    """The symbols of a model's inputs, or what it was built for."""
    symbols = getattr(model, "inputs", None)
    if symbols:
        return model.input
    shapes = model._build_shapes
    if not model.built or not shapes or _takes_more(model):
        raise NotBuiltError(
            f"{model.name}.export: what the model is called with is not known; give an "
            "input_signature, such as [InputSpec(shape=(None, 3), dtype='float32')]"
        )
    dtype = model.compute_dtype
    return map_shapes(
        lambda shape: InputSpec(dtype=dtype, shape=(None, *shape[1:])),
        next(iter(shapes.values())),
    )


def _takes_more(model: Any) -> bool:
    """Whether a call needs more than one argument."""
    try:
        inspect.signature(model.call).bind(None)
    except TypeError:
        return True
    return False


def _names(leaves: Sequence[Any]) -> list[str]:
    """The names of the inputs: their own, or made up where one lacks or recurs."""
    own = [getattr(x, "name", None) for x in leaves]
    found = []
    for i, name in enumerate(own):
        if not name or own.count(name) > 1:
            name = f"input_{i}"
            while name in own or name in found:
                name += "_"
        found.append(name)
    return found


def _tensor(model: Any, number: int, x: Any, name: str) -> ModelTensor:
    shape = getattr(x, "shape", None)
    if shape is None:
        raise ArgumentError(
            f"{model.name}.export: expected an input_signature of InputSpecs with "
            f"shapes, symbols or arrays; received {x!r}"
        )
    extents = tuple(
        int(n) if n is not None else f"dim_{number}_{axis}" if axis else BATCH
        for axis, n in enumerate(shape)
    )
    dtype = getattr(x, "dtype", None) or model.compute_dtype
    return ModelTensor(name, extents, dtypes.standardize(dtype))


def trace_inference(
    model: Any, signature: Signature, sizes: Mapping[str, int]
) -> InferenceGraph:
    """The graph of `model(inputs, training=False)` for these sizes.

    Raises:
        UnsupportedError: if a Variable is held in parts by several processes.
    """
    with Trace(f"{model.name}.export", creates_variables=False) as trace:
        stand_ins = [trace.placeholder(x.at(sizes)) for x in signature.inputs]
        packed = tree.pack_sequence_as(signature.structure, stand_ins)
        outputs = model(*packed, training=False)
        results = [trace.localize(y) for y in tree.flatten(outputs)]
    variables = [v for v in trace.captures if isinstance(v, Variable)]
    for variable in (*variables, *trace.writes):
        if variable.placement is not None:
            raise UnsupportedError(
                f"{model.name}.export: {variable.path} is held in parts by several "
                "processes; save the model, and export it from one process"
            )
    graph = without_gradients(trace.finish([*results, *trace.writes.values()]))
    names = output_names(model, outputs)
    structure = tree.structure_of(outputs)
    return InferenceGraph(graph, variables, list(trace.writes), names, structure)


def without_gradients(graph: Graph) -> Graph:
    """The graph without what says gradients alone, of which each trace has its own."""
    return expand(graph, lambda node: node.op.name == "custom_gradient")


def output_names(model: Any, outputs: Any) -> list[str]:
    """The keys of a dict, the names of a functional model, or `output_{i}`."""
    if isinstance(outputs, dict) and not any(map(tree.is_nested, outputs.values())):
        return [str(key) for key in tree.keys_of(outputs)]
    count = len(tree.flatten(outputs))
    own = list(getattr(model, "output_names", ()))
    if len(own) == count == len(set(own)):
        return own
    return [f"output_{i}" for i in range(count)]
