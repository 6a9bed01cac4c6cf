"""cuDNN through NVIDIA's frontend; the only module that uses it.

Operands are addresses, as Python ints, so that the frontend does not import a library
to resolve them. Plans are cached in memory, and on disk by graph, versions and device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from toolkit.backends import disk_cache
from toolkit.backends.cupy import libraries
from toolkit.backends.cupy.signatures import Signature
from toolkit.errors import BackendUnavailable, UnsupportedOnBackend
from toolkit.release import install_command

# Scalar arguments that the graph stores in separate tensors.
_NUMBERS = frozenset({"epsilon", "momentum"})
# Numerical notes of cuDNN for convolutions that do not compute the plain sum.
_TRANSFORMS = (
    "FFT",
    "WINOGRAD",
    *(f"WINOGRAD_TILE_{n}" for n in ("4x4", "6x6", "13x13")),
)
# cuDNN returns engines by expected speed, fastest first, and can return a hundred.
MAX_TIMED = 12
# A graph, and the limit of scratch memory in bytes.
Key = tuple[Signature, int | None]
DATA_TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}


@cache
def frontend() -> Any:
    """Return the frontend's module, after it loads its libraries.

    Raises:
        BackendUnavailable: the frontend, cuDNN or cuBLASLt is missing.
    """
    # The frontend looks for cuDNN only during its import. It finds the loaded library
    # in any folder.
    libraries.preload()
    libraries.load("cudnn")
    try:
        module = import_module("cudnn")
    except ImportError as error:
        raise BackendUnavailable(
            f"nvidia-cudnn-frontend is not installed ({error}): "
            f"{install_command('cuda13')}"
        ) from error
    try:
        module.backend_version()
    except RuntimeError as error:
        raise BackendUnavailable(f"cuDNN cannot be used: {error}") from error
    return module


def version() -> int:
    """Return cuDNN's version, for example 92800."""
    return int(frontend().backend_version())


def builder_version() -> str:
    """Return a version key of the graph builder: the frontend and this file."""
    facts = f"{getattr(frontend(), '__version__', '')} {version()}".encode()
    return hashlib.sha256(facts + Path(__file__).read_bytes()).hexdigest()[:12]


def properties(number: int) -> str:
    """Return the device properties that plans depend on."""
    serialized = frontend().create_device_properties(number).serialize()
    return serialized if isinstance(serialized, str) else bytes(serialized).decode()


def make_graph(signature: Signature, where: Mapping[str, Any]) -> Any:
    """Return the frontend's graph of a signature, without a plan.

    Args:
        signature: the graph description.
        where: the `handle` of a device; or `device_property` and `sm_version`, to plan
            for a device that is not present.
    """
    fe = frontend()
    kinds = {name: getattr(fe.data_type, kind) for name, kind in DATA_TYPES.items()}
    graph = fe.pygraph(
        io_data_type=kinds[signature.dtype],
        intermediate_data_type=fe.data_type.FLOAT,
        compute_data_type=fe.data_type.FLOAT,
        **where,
    )
    produced = {y for node in signature.nodes for y in node.outputs}
    dnn_tensors: dict[int, Any] = {}
    for number, tensor in enumerate(signature.tensors):
        if number not in produced:
            dnn_tensors[number] = graph.tensor(
                dim=list(tensor.shape),
                stride=list(tensor.strides),
                data_type=kinds[tensor.dtype],
                uid=tensor.uid,
                name=f"t{tensor.uid}",
            )
    for node in signature.nodes:
        inputs = [dnn_tensors[i] for i in node.inputs]
        for number, result in zip(
            node.outputs, _append(fe, graph, node, inputs), strict=True
        ):
            dnn_tensors[number], tensor = result, signature.tensors[number]
            # Without a shape, the frontend would infer the smallest shape for
            # gradients.
            result.set_dim(list(tensor.shape)).set_stride(list(tensor.strides))
            result.set_data_type(kinds[tensor.dtype])
            if tensor.uid:
                result.set_output(True).set_uid(tensor.uid)
    return graph


def _append(fe: Any, graph: Any, node: Any, inputs: list[Any]) -> tuple[Any, ...]:
    """Append one operation to the graph; return its results."""
    arguments = dict(node.arguments)
    for name, value in node.arguments:
        if isinstance(value, tuple):
            arguments[name] = list(value)
        elif name in _NUMBERS:
            kind = fe.scalar_type.RUNTIME_PARAM
            arguments[name] = graph.tensor_scalar(value, kind)
    method = getattr(graph, node.op)
    if node.names:
        return tuple(method(**dict(zip(node.names, inputs, strict=True)), **arguments))
    return (method(*inputs, compute_data_type=fe.data_type.FLOAT, **arguments),)


def plan(
    signature: Signature,
    where: Mapping[str, Any],
    workspace: int | None = None,
    names_all: bool = False,
) -> Any:
    """Return the frontend's graph with a plan of the precision of the signature.

    It selects the plan with the highest expected speed; others can be built by number.

    Args:
        signature: the graph description.
        where: as for `make_graph`.
        workspace: the limit of scratch memory in bytes; None for no limit.
        names_all: whether to list every plan. The list of slow plans doubles the
            planning time, so the code requests it only if no other plan works.

    Raises:
        UnsupportedOnBackend: cuDNN has no plan.
    """
    modes = frontend().heur_mode
    if not names_all:
        with suppress(UnsupportedOnBackend):
            return _plan_graph(signature, where, workspace, [modes.A])
    every = [modes.A, modes.B, modes.FALLBACK]
    return _plan_graph(signature, where, workspace, every)


def _plan_graph(
    signature: Signature,
    where: Mapping[str, Any],
    workspace: int | None,
    modes: Sequence[Any],
) -> Any:
    """Return a planned graph, with plans from the given cuDNN heuristics."""
    fe = frontend()
    graph = make_graph(signature, where)
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans(list(modes))
        notes = fe.numerical_note
        # The same seed gives the same bits.
        refused = [notes.NONDETERMINISTIC]
        if signature.is_strict:
            refused += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
            refused += [notes.REDUCED_PRECISION_REDUCTION]
        if signature.precision == "highest":
            refused += [getattr(notes, n) for n in _TRANSFORMS if hasattr(notes, n)]
        graph.deselect_numeric_notes(refused)
        if workspace is not None:
            graph.deselect_workspace_greater_than(workspace)
        graph.check_support()
        graph.build_plans(fe.build_plan_policy.HEURISTICS_CHOICE)
    except fe.cudnnGraphNotSupportedError as error:
        raise unsupported_graph(signature, error) from error
    return graph


def load_graph(content: bytes, where: Mapping[str, Any]) -> Any:
    """Return the graph with its plan from bytes of `serialize`."""
    graph = frontend().pygraph(**where)
    # The binding takes any sequence of numbers except `bytes`.
    graph.deserialize(bytearray(content))
    return graph


def unsupported_graph(signature: Signature, error: Exception) -> UnsupportedOnBackend:
    """Return the error for a graph without a cuDNN plan."""
    names = "+".join(node.op for node in signature.nodes)
    shapes = " ".join(str(t.shape) for t in signature.tensors if t.uid)
    return UnsupportedOnBackend(
        names,
        signature.dtype,
        f"channels last, {shapes}",
        f"cuDNN has no plan: {error}",
    )


class GraphPlan:
    """Executable graph with a plan on a device, safe under graph capture.

    Args:
        cache: the plans of the device.
        signature: the graph description.
        graph: the frontend's graph with its plan.
    """

    def __init__(self, cache: Plans, signature: Signature, graph: Any) -> None:
        self.cache = cache
        self.signature = signature
        self.graph = graph
        self.workspace: int = int(graph.get_workspace_size())
        self.uids: list[int] = sorted(t.uid for t in signature.tensors if t.uid)

    def __call__(self, pointers: tuple[int, ...], workspace: int) -> None:
        """Launch the graph on the stream of the handle; the arguments are addresses."""
        operands = dict(zip(self.uids, pointers, strict=True))
        self.graph.execute(operands, workspace, handle=self.cache.handle)


class Plans:
    """Cache of plans for one device, by signature.

    Args:
        device: the device name and model key.
        stream: the address of the stream that they run on.
        folder: the disk cache; None disables it.
    """

    def __init__(self, device: str, stream: int, folder: Path | None) -> None:
        fe = frontend()
        self.handle: Any = fe.create_handle()
        fe.set_stream(self.handle, stream)
        name = f"cudnn-{version()}-{to_file_name(device)}-{builder_version()}"
        self.folder: Path | None = folder and folder / name
        self._plans: dict[Key, GraphPlan] = {}
        self._tuned: dict[Key, GraphPlan] = {}

    def get(self, signature: Signature, workspace: int | None = None) -> GraphPlan:
        """Return the plan of a graph: from memory, from disk, or built now."""
        key = signature, workspace
        if not self.has(key):
            graph = self._build(key)
            self._write(self._path(key, "plan"), graph)
            self._plans[key] = GraphPlan(self, signature, graph)
        return self._plans[key]

    def has(self, key: Key) -> bool:
        """Return whether a plan is in memory or on disk."""
        if key not in self._plans:
            graph = self._read(self._path(key, "plan"))
            if graph is not None:
                self._plans[key] = GraphPlan(self, key[0], graph)
        return key in self._plans

    def prepare(
        self, keys: Iterable[Key], make: Callable[[list[Key]], dict[Key, bytes]]
    ) -> None:
        """Build the missing plans together.

        Args:
            keys: of the graphs.
            make: a function that returns serialized plans, as far as possible.
        """
        missing_keys = [key for key in dict.fromkeys(keys) if not self.has(key)]
        for key, content in make(missing_keys).items():
            with suppress(Exception):  # ignore invalid bytes: `get` builds the plan
                graph = load_graph(content, {"handle": self.handle})
                self._plans[key] = GraphPlan(self, key[0], graph)
                if path := self._path(key, "plan"):
                    disk_cache.store(path, content)

    def tune(
        self,
        signature: Signature,
        workspace: int | None,
        measure: Callable[[GraphPlan], float],
    ) -> GraphPlan:
        """Return the fastest plan of a graph: from memory, from disk, or timed now.

        This cache is separate from the cache of `get`, whose results stay
        bit-identical.

        Args:
            signature, workspace: as for `plan`.
            measure: a function that returns the run time of a plan in seconds.
        """
        key = signature, workspace
        if key not in self._tuned:
            path = self._path(key, "tuned")
            graph = self._read(path)
            if graph is None:
                graph = self._build(key, names_all=True)
                if self._choose(signature, graph, measure):
                    self._write(path, graph)
                else:
                    graph = self._build(key)
            self._tuned[key] = GraphPlan(self, signature, graph)
        return self._tuned[key]

    def _build(self, key: Key, names_all: bool = False) -> Any:
        signature, workspace = key
        return plan(signature, {"handle": self.handle}, workspace, names_all)

    def _choose(
        self, signature: Signature, graph: Any, measure: Callable[[GraphPlan], float]
    ) -> bool:
        """Select the fastest of a graph's first plans; return False on failure."""
        times: list[tuple[float, int]] = []
        for index in range(graph.get_execution_plan_count()):
            # A plan that is deselected, or that the device rejects, is no candidate.
            with suppress(Exception):
                graph.build_plan_at_index(index)
                times.append((measure(GraphPlan(self, signature, graph)), index))
            if len(times) == MAX_TIMED:
                break
        if times:
            graph.build_plan_at_index(min(times)[1])
        return bool(times)

    def _path(self, key: Key, suffix: str) -> Path | None:
        signature, workspace = key
        limit = "" if workspace is None else f"-{workspace}"
        return self.folder and self.folder / f"{signature.key}{limit}.{suffix}"

    def _read(self, path: Path | None) -> Any:
        """Read a plan from disk; return None if missing, or rejected by cuDNN."""
        content = path and disk_cache.load(path)
        if not content:
            return None
        try:
            return load_graph(content, {"handle": self.handle})
        except Exception:  # ignore any error: the plan is built again
            return None

    def _write(self, path: Path | None, graph: Any) -> None:
        if path is not None:
            disk_cache.store(path, bytes(graph.serialize()))


def to_file_name(name: str) -> str:
    """Return a name that is valid as a file name."""
    return "".join(c if c.isalnum() else "-" for c in name)
