"""cuDNN through NVIDIA's frontend: the one module that touches it.

Operands are addresses, as Python ints: the frontend then asks no other library what
they are. Plans are kept in memory, and on disk by graph, versions and device.
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

# Arguments that are numbers in tensors of their own, known to the graph.
_NUMBERS = frozenset({"epsilon", "momentum"})
# What makes a convolution more than the sum that defines it, by cuDNN's notes.
_TRANSFORMS = (
    "FFT",
    "WINOGRAD",
    *(f"WINOGRAD_TILE_{n}" for n in ("4x4", "6x6", "13x13")),
)
# cuDNN names those first that it expects to be fast, and may name a hundred.
MOST_TIMED = 12
# A graph, and the most bytes of scratch memory.
Key = tuple[Signature, int | None]
DATA_TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}


@cache
def frontend() -> Any:
    """The frontend's module, with all that it needs loaded.

    Raises:
        BackendUnavailable: the frontend, cuDNN or cuBLASLt is missing.
    """
    # It looks for cuDNN when it is imported, and never again: by then it is loaded, so
    # that it is found wherever it was.
    libraries.preload()
    libraries.load("cudnn")
    try:
        module = import_module("cudnn")
    except ImportError as error:
        raise BackendUnavailable(
            f"nvidia-cudnn-frontend is not installed ({error}): "
            "pip install 'toolkit[cuda13]'"
        ) from error
    try:
        module.backend_version()
    except RuntimeError as error:
        raise BackendUnavailable(f"cuDNN cannot be used: {error}") from error
    return module


def version() -> int:
    """cuDNN's version, such as 92800."""
    return int(frontend().backend_version())


def maker() -> str:
    """A short name of what makes graphs of signatures: the frontend, and this file."""
    facts = f"{getattr(frontend(), '__version__', '')} {version()}".encode()
    return hashlib.sha256(facts + Path(__file__).read_bytes()).hexdigest()[:12]


def properties(number: int) -> str:
    """What the device of a number says of itself, as far as plans depend on it."""
    found = frontend().create_device_properties(number).serialize()
    return found if isinstance(found, str) else bytes(found).decode()


def make_graph(signature: Signature, where: Mapping[str, Any]) -> Any:
    """The frontend's graph of a signature, not yet planned.

    Args:
        signature: what to compute.
        where: the `handle` of a device; or `device_property` and `sm_version`, to plan
            for a device that is not there.
    """
    fe = frontend()
    kinds = {name: getattr(fe.data_type, kind) for name, kind in DATA_TYPES.items()}
    graph = fe.pygraph(
        io_data_type=kinds[signature.dtype],
        intermediate_data_type=fe.data_type.FLOAT,
        compute_data_type=fe.data_type.FLOAT,
        **where,
    )
    made = {y for node in signature.nodes for y in node.outputs}
    found: dict[int, Any] = {}
    for number, tensor in enumerate(signature.tensors):
        if number not in made:
            found[number] = graph.tensor(
                dim=list(tensor.shape),
                stride=list(tensor.strides),
                data_type=kinds[tensor.dtype],
                uid=tensor.uid,
                name=f"t{tensor.uid}",
            )
    for node in signature.nodes:
        inputs = [found[i] for i in node.inputs]
        for number, result in zip(
            node.outputs, _apply(fe, graph, node, inputs), strict=True
        ):
            found[number], tensor = result, signature.tensors[number]
            # Without a shape, the gradients' own would be the smallest that fits.
            result.set_dim(list(tensor.shape)).set_stride(list(tensor.strides))
            result.set_data_type(kinds[tensor.dtype])
            if tensor.uid:
                result.set_output(True).set_uid(tensor.uid)
    return graph


def _apply(fe: Any, graph: Any, node: Any, inputs: list[Any]) -> tuple[Any, ...]:
    """The results of one operation."""
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
    """The frontend's graph with a plan that is as exact as the signature asks.

    It is the one that cuDNN expects to be the fastest; others can be built by number.

    Args:
        signature: what to compute.
        where: as for `make_graph`.
        workspace: the most bytes of scratch memory; None for no limit.
        names_all: whether the graph is to know of every plan that there is. To name
            those that cuDNN expects least of takes as long as all else, so they are
            looked for only where no other one will do.

    Raises:
        UnsupportedOnBackend: cuDNN has no plan.
    """
    modes = frontend().heur_mode
    if not names_all:
        with suppress(UnsupportedOnBackend):
            return _planned(signature, where, workspace, [modes.A])
    every = [modes.A, modes.B, modes.FALLBACK]
    return _planned(signature, where, workspace, every)


def _planned(
    signature: Signature,
    where: Mapping[str, Any],
    workspace: int | None,
    modes: Sequence[Any],
) -> Any:
    """The same, of the plans that some of cuDNN's heuristics name."""
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
        raise refused_graph(signature, error) from error
    return graph


def restored(content: bytes, where: Mapping[str, Any]) -> Any:
    """The graph, with its plan, that `serialize` made these bytes of."""
    graph = frontend().pygraph(**where)
    # The binding takes any sequence of numbers but `bytes`.
    graph.deserialize(bytearray(content))
    return graph


def refused_graph(signature: Signature, error: Exception) -> UnsupportedOnBackend:
    """The error for a graph that cuDNN has no plan for."""
    names = "+".join(node.op for node in signature.nodes)
    shapes = " ".join(str(t.shape) for t in signature.tensors if t.uid)
    return UnsupportedOnBackend(
        names,
        signature.dtype,
        f"channels last, {shapes}",
        f"cuDNN has no plan: {error}",
    )


class GraphPlan:
    """A planned graph on a device, ready to be called and captured.

    Args:
        cache: the plans of the device.
        signature: what it computes.
        graph: the frontend's graph with its plan.
    """

    def __init__(self, cache: Plans, signature: Signature, graph: Any) -> None:
        self.cache = cache
        self.signature = signature
        self.graph = graph
        self.workspace: int = int(graph.get_workspace_size())
        self.uids: list[int] = sorted(t.uid for t in signature.tensors if t.uid)

    def __call__(self, pointers: tuple[int, ...], workspace: int) -> None:
        """Start the graph on the stream of the handle; all are addresses."""
        operands = dict(zip(self.uids, pointers, strict=True))
        self.graph.execute(operands, workspace, handle=self.cache.handle)


class Plans:
    """The plans of one device, by signature.

    Args:
        device: its name and what else tells devices apart.
        stream: the address of the stream that they run on.
        folder: where they are kept between processes; None: nowhere.
    """

    def __init__(self, device: str, stream: int, folder: Path | None) -> None:
        fe = frontend()
        self.handle: Any = fe.create_handle()
        fe.set_stream(self.handle, stream)
        name = f"cudnn-{version()}-{safe(device)}-{maker()}"
        self.folder: Path | None = folder and folder / name
        self._plans: dict[Key, GraphPlan] = {}
        self._tuned: dict[Key, GraphPlan] = {}

    def get(self, signature: Signature, workspace: int | None = None) -> GraphPlan:
        """The plan of a graph, from memory, from disk, or made now."""
        key = signature, workspace
        if not self.has(key):
            graph = self._made(key)
            self._write(self._path(key, "plan"), graph)
            self._plans[key] = GraphPlan(self, signature, graph)
        return self._plans[key]

    def has(self, key: Key) -> bool:
        """Whether a plan is in memory or on disk."""
        if key not in self._plans:
            graph = self._read(self._path(key, "plan"))
            if graph is not None:
                self._plans[key] = GraphPlan(self, key[0], graph)
        return key in self._plans

    def prepare(
        self, keys: Iterable[Key], make: Callable[[list[Key]], dict[Key, bytes]]
    ) -> None:
        """Have those plans made together that are nowhere yet.

        Args:
            keys: of the graphs.
            make: gives their plans as they are stored, as far as it can.
        """
        missing = [key for key in dict.fromkeys(keys) if not self.has(key)]
        for key, content in make(missing).items():
            with suppress(Exception):  # whatever is wrong with it: it is made here
                graph = restored(content, {"handle": self.handle})
                self._plans[key] = GraphPlan(self, key[0], graph)
                if path := self._path(key, "plan"):
                    disk_cache.store(path, content)

    def tune(
        self,
        signature: Signature,
        workspace: int | None,
        measure: Callable[[GraphPlan], float],
    ) -> GraphPlan:
        """The fastest plan of a graph, from memory, from disk, or timed now.

        It is kept apart from what `get` gives, which computes the same bits as ever.

        Args:
            signature, workspace: as for `plan`.
            measure: the seconds that a plan takes.
        """
        key = signature, workspace
        if key not in self._tuned:
            path = self._path(key, "tuned")
            graph = self._read(path)
            if graph is None:
                graph = self._made(key, names_all=True)
                if self._choose(signature, graph, measure):
                    self._write(path, graph)
                else:
                    graph = self._made(key)
            self._tuned[key] = GraphPlan(self, signature, graph)
        return self._tuned[key]

    def _made(self, key: Key, names_all: bool = False) -> Any:
        signature, workspace = key
        return plan(signature, {"handle": self.handle}, workspace, names_all)

    def _choose(
        self, signature: Signature, graph: Any, measure: Callable[[GraphPlan], float]
    ) -> bool:
        """Give a graph the fastest of the first plans; False if none can be timed."""
        times: list[tuple[float, int]] = []
        for index in range(graph.get_execution_plan_count()):
            # What was deselected, or what the device refuses, is no candidate.
            with suppress(Exception):
                graph.build_plan_at_index(index)
                times.append((measure(GraphPlan(self, signature, graph)), index))
            if len(times) == MOST_TIMED:
                break
        if times:
            graph.build_plan_at_index(min(times)[1])
        return bool(times)

    def _path(self, key: Key, suffix: str) -> Path | None:
        signature, workspace = key
        limit = "" if workspace is None else f"-{workspace}"
        return self.folder and self.folder / f"{signature.key}{limit}.{suffix}"

    def _read(self, path: Path | None) -> Any:
        """A plan from disk; None if there is none, or this cuDNN refuses it."""
        content = path and disk_cache.load(path)
        if not content:
            return None
        try:
            return restored(content, {"handle": self.handle})
        except Exception:  # whatever is wrong with it: it is made again
            return None

    def _write(self, path: Path | None, graph: Any) -> None:
        if path is not None:
            disk_cache.store(path, bytes(graph.serialize()))


def safe(name: str) -> str:
    """A name as one of a file."""
    return "".join(c if c.isalnum() else "-" for c in name)
