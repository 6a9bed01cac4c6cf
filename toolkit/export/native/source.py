"""Content of a native library: the programs and weights of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.backends.library import (
    DTYPES,
    LibraryProgram,
    LibrarySource,
    LibraryTensor,
    LibraryWeight,
)
from toolkit.backends.target import Target
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.program import Program
from toolkit.core.tensor import backend
from toolkit.core.variable import Variable
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.export.batching import graph_of_outputs, has_independent_rows
from toolkit.export.inference import (
    BATCH,
    InferenceGraph,
    ModelTensor,
    Signature,
    trace_inference,
)
from toolkit.ir import Node

if TYPE_CHECKING:
    from toolkit.models.model import Model

# Default batch sizes, limited by the workspace.
BATCHES = (1, 4, 16, 64, 256)
WORKSPACE_BYTES = 1 << 28


@record
class Sizes:
    """Sizes of the programs in a library.

    Attributes:
        batches: the batch sizes, in ascending order; None means `BATCHES`, or the size
            of the model.
        extents: a number for each other free extent of the model.
        workspace: the maximum memory of the programs of `BATCHES` in bytes.
    """

    batches: Sequence[int] | None = None
    extents: Mapping[str, int] | None = None
    workspace: int = WORKSPACE_BYTES


def make_source(
    model: Model,
    signature: Signature,
    sizes: Sizes,
    processors: Sequence[object],
    prefix: str,
    embeds: Callable[[int], bool],
) -> LibrarySource:
    """Compile the programs of a model for each batch size.

    Args:
        model: a built model.
        signature: its call signature.
        sizes: the sizes of its inputs.
        processors: the processors to compile for.
        prefix: the prefix of the library's functions.
        embeds: a function that returns whether to embed weights of a number of bytes.

    Raises:
        UnsupportedError: an operation has no generated code; the message has the
            layers.
    """
    label = f"{model.name}.export"
    _check_dtypes(label, "input", signature.inputs)
    extents = _extents(label, signature, sizes.extents or {})
    batches, can_stop = _batch_sizes(label, signature, sizes.batches)
    weights = _Weights()
    traces: dict[int, InferenceGraph] = {}
    programs: list[LibraryProgram] = []
    for size in batches:
        inference = trace_inference(model, signature, {**extents, BATCH: size})
        bodies = [_compile(label, inference, processor) for processor in processors]
        arena_bytes = max(body.arena_bytes for body in bodies)
        if can_stop and programs and arena_bytes > sizes.workspace:
            break
        traces[size] = inference
        programs.append(weights.program(size, inference, bodies))
    if BATCH in signature.free_extents and len(traces) == 1:
        other_size = (
            2 * batches[0] + 1
        )  # shows which output extents depend on the batch
        traces[other_size] = trace_inference(
            model, signature, {**extents, BATCH: other_size}
        )
    nbytes = sum(w.array.nbytes for w in weights.library_weights)
    needs_whole_batches = BATCH not in signature.free_extents or any(
        w.is_state for w in weights.library_weights
    )
    return LibrarySource(
        prefix=prefix,
        programs=programs,
        inputs=[_library_tensor(x, extents) for x in signature.inputs],
        outputs=_outputs(label, traces, BATCH in signature.free_extents),
        weights=weights.library_weights,
        processors=processors,
        embed=embeds(nbytes),
        takes_whole_batches=needs_whole_batches
        or not _has_independent_rows(signature, traces),
    )


def _has_independent_rows(
    signature: Signature, traces: Mapping[int, InferenceGraph]
) -> bool:
    """Return whether a batch can be split, and padded with other rows."""
    return has_independent_rows(
        signature,
        {rows: graph_of_outputs(inference) for rows, inference in traces.items()},
    )


# --- sizes ----------------------------------------------------------------------------


def _extents(
    label: str, signature: Signature, sizes: Mapping[str, int]
) -> dict[str, int]:
    """Return a number for each free extent except the batch."""
    names = [name for name in signature.free_extents if name != BATCH]
    for name in sizes:
        if name not in names:
            raise ArgumentError(
                f"{label}: sizes: expected some of {names}, the dynamic extents of "
                f"the model; received {name!r}"
            )
    for name in names:
        size = sizes.get(name)
        if size is None:
            tensor = next(x for x in signature.inputs if name in x.shape)
            example_sizes = {name: 64 for name in names if name not in sizes}
            raise UnsupportedError(
                f"{label}: axis {tensor.shape.index(name)} of input {tensor.name!r} "
                "has no fixed size, but a native library needs one. Choose it by "
                f"sizes={example_sizes} or by an input_signature"
            )
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ArgumentError(
                f"{label}: sizes: expected one integer > 0 for {name!r}, because a "
                f"library supports one size; received {size!r}"
            )
    return {name: sizes[name] for name in names}


def _batch_sizes(
    label: str, signature: Signature, batches: Sequence[int] | None
) -> tuple[list[int], bool]:
    """Return the batch sizes, and whether the larger ones are optional."""
    if BATCH in signature.free_extents:
        if batches is None:
            return list(BATCHES), True
        return sorted(set(batches)), False
    first_extents = {x.shape[0] for x in signature.inputs if x.shape}
    fixed = int(first_extents.pop()) if len(first_extents) == 1 else 1
    if batches is not None and list(batches) != [fixed]:
        raise ArgumentError(
            f"{label}: batch: the model's inputs fix it to {fixed}; received "
            f"{list(batches)}"
        )
    return [fixed], False


# --- tensors --------------------------------------------------------------------------


def _check_dtypes(label: str, kind: str, tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        if tensor.dtype not in DTYPES:
            raise UnsupportedError(
                f"{label}: {kind} {tensor.name!r} has dtype {tensor.dtype!r}, which "
                "native libraries do not support; supported are "
                f"{', '.join(DTYPES)}. Export a model that starts after this layer"
            )


def _library_tensor(x: ModelTensor, extents: Mapping[str, int]) -> LibraryTensor:
    sizes = {**extents, BATCH: -1}
    shape = tuple(n if isinstance(n, int) else sizes[n] for n in x.shape)
    return LibraryTensor(x.name, x.dtype, shape)


def _outputs(
    label: str, traces: Mapping[int, InferenceGraph], has_batch: bool
) -> list[LibraryTensor]:
    """Return the outputs, with -1 for first extents that equal each batch size."""
    first = next(iter(traces.values()))
    outputs = []
    for i, name in enumerate(first.names):
        specs = {size: t.graph.outputs[i].spec for size, t in traces.items()}
        shapes = {spec.shape for spec in specs.values()}
        shape = tuple(specs[next(iter(specs))].shape)
        has_batch_axis = bool(shape) and all(
            s.shape[:1] == (n,) for n, s in specs.items()
        )
        if has_batch and has_batch_axis:
            shapes = {s[1:] for s in shapes}
            shape = (-1, *shape[1:])
        if len(shapes) > 1:
            raise UnsupportedError(
                f"{label}: output {name!r} has the shapes "
                f"{', '.join((f'{tuple(s.shape)} for {n}' for n, s in specs.items()))}"
                " rows; native libraries support a batch only as the first axis. Fix "
                "the batch by an input_signature"
            )
        outputs.append(LibraryTensor(name, first.graph.outputs[i].spec.dtype, shape))
    _check_dtypes(label, "output", outputs)
    return outputs


# --- programs -------------------------------------------------------------------------


def _compile(label: str, inference: InferenceGraph, processor: object) -> Program:
    variable_indices = {v: i for i, v in enumerate(inference.variables)}
    first = len(inference.graph.inputs) - len(inference.variables)
    updates = [
        (
            len(inference.names) + i,
            first + variable_indices[v] if v in variable_indices else None,
        )
        for i, v in enumerate(inference.updated_variables)
    ]
    written = set(inference.updated_variables)
    frozen = [first + i for v, i in variable_indices.items() if v not in written]
    target = Target(backend(), processor=processor, updates=updates, frozen=frozen)
    program = compile_program(inference.graph, target, label)
    if program.code is None:
        raise _missing_code(label, program, processor)
    return program


def _missing_code(label: str, program: Program, processor: Any) -> UnsupportedError:
    """Return the error for operations without generated code; it names the cause."""
    nodes = _uncompiled_nodes(program)
    for dtype, targets in backend().generator.missing_dtypes(processor).items():
        affected = [node for node in nodes if dtype in _dtypes_of(node)]
        if affected:
            hint = f"the target {', '.join(targets)}, or " if targets else ""
            return UnsupportedError(
                f"{label}: no machine code is generated for {dtype} on "
                f"{processor.name}, the dtype of {_describe(affected)}. Use {hint}"
                "another dtype, or export the model as ONNX"
            )
    return UnsupportedError(
        f"{label}: no machine code is generated for {_describe(nodes)}, but a native "
        "library needs it. Do this operation outside of the model, or export the "
        "model as ONNX"
    )


def _uncompiled_nodes(program: Program) -> list[Node]:
    """Return the nodes without generated code."""
    return [
        program.graph.nodes[i]
        for segment in program.segments
        for i in segment.members
        if segment.code is None and not program.is_view(i)
    ]


def _dtypes_of(node: Node) -> set[str]:
    return {x.spec.dtype for x in (*node.inputs, *node.outputs)}


def _describe(nodes: Sequence[Node]) -> str:
    """Return the primitives and their layers."""
    descriptions = dict.fromkeys(
        f"{node.op.name} in {node.origin or 'the model itself'}" for node in nodes
    )
    return ", ".join(descriptions) or "a model without operations"


class _Weights:
    """Unique Variables of all programs."""

    def __init__(self) -> None:
        self.library_weights: list[LibraryWeight] = []
        self._indices: dict[Variable, int] = {}
        self._used_names: set[str] = set()

    def program(
        self, size: int, inference: InferenceGraph, bodies: Sequence[Program]
    ) -> LibraryProgram:
        """Return the programs of a batch size, with weight and state indices."""
        states = set(inference.updated_variables)
        updates = [self._index_of(v, True) for v in inference.updated_variables]
        weights = [self._index_of(v, v in states) for v in inference.variables]
        return LibraryProgram(size, bodies, weights, updates)

    def _index_of(self, variable: Variable, is_state: bool) -> int:
        if variable not in self._indices:
            self._indices[variable] = len(self.library_weights)
            array = np.asarray(variable.value)
            weight = LibraryWeight(self._unique_name(variable.path), array, is_state)
            self.library_weights.append(weight)
        return self._indices[variable]

    def _unique_name(self, path: str) -> str:
        name = next(n for n in _numbered_paths(path) if n not in self._used_names)
        self._used_names.add(name)
        return name


def _numbered_paths(path: str) -> Iterator[str]:
    yield path
    number = 1
    while True:
        yield f"{path}_{number}"
        number += 1
