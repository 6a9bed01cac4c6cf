"""Inference graphs: traces of a model for given inputs, for the exporters.

A trace uses one set of sizes. Each free extent of the inputs has a name, and a trace
has a number for each name.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolkit import dtypes, tree
from toolkit.compiler.passes.rewriting import expand
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, NotBuiltError, UnsupportedError
from toolkit.ir import Graph, Spec
from toolkit.layers.call import map_shapes
from toolkit.layers.input_spec import InputSpec

if TYPE_CHECKING:
    from toolkit.models.model import Model

BATCH = "batch"


@record
class ModelTensor:
    """Input or output of a model.

    Attributes:
        name: the name for callers.
        shape: the extents; a free extent is a name.
        dtype: the dtype's name.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def spec_for(self, sizes: Mapping[str, int]) -> Spec:
        """Return the spec with a number for each free extent."""
        extents = (n if isinstance(n, int) else sizes[n] for n in self.shape)
        return Spec(extents, self.dtype)


@record
class Signature:
    """Call signature of a model.

    Attributes:
        inputs: its tensors, as a flat list.
        structure: the positional arguments, as a structure of tensors.
    """

    inputs: Sequence[ModelTensor]
    structure: Any

    @property
    def free_extents(self) -> list[str]:
        """The names of all free extents, the batch first."""
        extents = dict.fromkeys(n for x in self.inputs for n in x.shape)
        return sorted((n for n in extents if isinstance(n, str)), key=_batch_first)


def _batch_first(name: str) -> tuple[bool, str]:
    return name != BATCH, name


@record
class InferenceGraph:
    """Trace of a model.

    Attributes:
        graph: the inputs are the inputs of the signature, then the values of the
            Variables. The outputs are the outputs of the model, then the new values of
            `updated_variables`.
        variables: the Variables that the graph reads, in the order of its inputs.
        updated_variables: the Variables that the model updates, such as states.
        names: the names of the model's outputs.
        structure: the structure of the outputs.
    """

    graph: Graph
    variables: Sequence[Variable]
    updated_variables: Sequence[Variable]
    names: Sequence[str]
    structure: Any


def signature_of(model: Model, input_signature: Any = None) -> Signature:
    """Return the call signature of a model, from its symbols or its build shapes.

    The free first extent of each input is `batch`; other free extents of input i are
    `dim_{i}_{axis}`.

    Args:
        model: a built model.
        input_signature: an override: a list of call arguments, with an InputSpec that
            has a shape, a symbol or an array for each tensor.

    Raises:
        NotBuiltError: the inputs are unknown.
    """
    if input_signature is None:
        arguments = (_model_inputs(model),)
    else:
        arguments = _call_arguments(model, input_signature)
    leaves = tree.flatten(arguments)
    if not leaves:
        raise ArgumentError(
            f"{model.name}.export: expected an input_signature of one or more inputs; "
            f"received {input_signature!r}"
        )
    names = _unique_names(leaves)
    inputs = [_model_tensor(model, i, x, names[i]) for i, x in enumerate(leaves)]
    return Signature(inputs, tree.structure_of(arguments))


def _call_arguments(model: Model, signature: Any) -> tuple[Any, ...]:
    """Return the call arguments, from a signature or a single argument."""
    if not isinstance(signature, (list, tuple)):
        return (signature,)
    inputs = getattr(model, "inputs", None)
    if inputs is not None and len(inputs) == len(signature) > 1:
        return (list(signature),)  # models of symbols take one argument
    return tuple(signature)


def _model_inputs(model: Model) -> Any:
    """Return the symbols of a model's inputs, or its build shapes."""
    symbols = getattr(model, "inputs", None)
    if symbols:
        return model.input
    shapes = model._build_shapes
    if not model.built or not shapes or _takes_several_arguments(model):
        raise NotBuiltError(
            f"{model.name}.export: the inputs of the model are unknown; pass an "
            "input_signature, such as [InputSpec(shape=(None, 3), dtype='float32')]"
        )
    dtype = model.compute_dtype
    return map_shapes(
        lambda shape: InputSpec(dtype=dtype, shape=(None, *shape[1:])),
        next(iter(shapes.values())),
    )


def _takes_several_arguments(model: Model) -> bool:
    """Return whether a call requires more than one argument."""
    try:
        inspect.signature(model.call).bind(None)
    except TypeError:
        return True
    return False


def _unique_names(leaves: Sequence[Any]) -> list[str]:
    """Return unique names of the inputs, generated if missing or repeated."""
    leaf_names = [getattr(x, "name", None) for x in leaves]
    names = []
    for i, name in enumerate(leaf_names):
        if not name or leaf_names.count(name) > 1:
            name = f"input_{i}"
            while name in leaf_names or name in names:
                name += "_"
        names.append(name)
    return names


def _model_tensor(model: Model, number: int, x: Any, name: str) -> ModelTensor:
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
    model: Model, signature: Signature, sizes: Mapping[str, int]
) -> InferenceGraph:
    """Return the graph of `model(inputs, training=False)` for these sizes.

    Raises:
        UnsupportedError: a Variable is sharded over several processes.
    """
    with Trace(f"{model.name}.export", creates_variables=False) as trace:
        placeholders = [trace.placeholder(x.spec_for(sizes)) for x in signature.inputs]
        arguments = tree.pack_sequence_as(signature.structure, placeholders)
        outputs = model(*arguments, training=False)
        results = [trace.localize(y) for y in tree.flatten(outputs)]
    variables = [v for v in trace.captures if isinstance(v, Variable)]
    for variable in (*variables, *trace.writes):
        if variable.placement is not None:
            raise UnsupportedError(
                f"{model.name}.export: {variable.path} is sharded over several "
                "processes; save the model, and export it from one process"
            )
    graph = without_gradients(trace.finish([*results, *trace.writes.values()]))
    names = output_names(model, outputs)
    structure = tree.structure_of(outputs)
    return InferenceGraph(graph, variables, list(trace.writes), names, structure)


def without_gradients(graph: Graph) -> Graph:
    """Return the graph without gradient annotations, which differ in each trace."""
    return expand(graph, lambda node: node.op.name == "custom_gradient")


def output_names(model: Model, outputs: Any) -> list[str]:
    """Return the keys of a dict, the names of a functional model, or `output_{i}`."""
    if isinstance(outputs, dict) and not any(map(tree.is_nested, outputs.values())):
        return [str(key) for key in tree.keys_of(outputs)]
    count = len(tree.flatten(outputs))
    model_names = list(getattr(model, "output_names", ()))
    if len(model_names) == count == len(set(model_names)):
        return model_names
    return [f"output_{i}" for i in range(count)]
