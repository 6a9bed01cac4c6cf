"""Sessions: what is fetched is replayed as one compiled function, and nothing else."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from toolkit import dtypes, tree
from toolkit.compat.tensorflow.modes import local
from toolkit.compat.tensorflow.v1.cluster.master import Master
from toolkit.compat.tensorflow.v1.cluster.remote import RemotePlan, master_of
from toolkit.compat.tensorflow.v1.graph import Graph, get_default_graph
from toolkit.compat.tensorflow.v1.plan import Plan
from toolkit.compat.tensorflow.v1.seeds import GraphSeed
from toolkit.compat.tensorflow.v1.tensors import GraphOperation, GraphTensor
from toolkit.compat.tensorflow.v1.variables import GraphVariable
from toolkit.core.naming import root_scope
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    ToolkitError,
    TraceError,
)
from toolkit.random import SeedGenerator


class Summary:
    """Tensors to fetch by kind and tag; what is fetched is a dict of their values."""

    def __init__(self, tensors: dict[tuple[str, str], Any]) -> None:
        self.tensors = tensors


class Session:
    """Runs parts of a graph, and holds the values of its Variables.

    Args:
        target: "" to run in this process, or `target` of a `tf.train.Server`: then the
            tasks of its cluster run the operations that are placed on them, and that
            server those that are placed nowhere. Variables stay there when the session
            ends.
        graph: what to run; the default graph if None.
        config: a `ConfigProto`; kept. Of a session on a cluster,
            `operation_timeout_in_ms` limits each run; else it has no effect: threads
            and devices are settings of the process, `TOOLKIT_NUM_THREADS` and
            `toolkit.device`.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> with tf.Graph().as_default(), tf.Session() as session:
        ...     x = tf.placeholder("float32", (2,))
        ...     session.run({"sum": x + 1.0}, {x: [1.0, 2.0]})
        {'sum': array([2., 3.], dtype=float32)}
    """

    def __init__(
        self, target: str = "", graph: Graph | None = None, config: Any = None
    ) -> None:
        self.master: Master | None = master_of(target, config) if target else None
        self.graph: Graph = get_default_graph() if graph is None else graph
        self.config = config
        self.initialized: set[Any] = set()
        self._cells: dict[Any, Variable] = {}
        self._generators: dict[Any, SeedGenerator] = {}
        self._plans: dict[Any, Plan] = {}
        self._closed = False
        self._entered: list[Any] = []
        # Of a session on a cluster: what programs call Variables and random numbers.
        self.lock: threading.RLock = threading.RLock()
        self._of_cells: dict[Variable, Any] = {}
        self._of_states: dict[Variable, str] = {}
        self._programs = itertools.count()

    def run(
        self,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """The values of what is fetched; only what they need is run.

        Args:
            fetches: a nest of tensors, Variables, operations or their names.
            feed_dict: values by the tensor that they stand for; any may be given.
            options, run_metadata: only None.

        Returns:
            A nest like `fetches` of arrays; None for operations.

        Raises:
            FailedPreconditionError: if a Variable is read that has no value yet.
            ArgumentError: if a placeholder is needed and not fed.
            ShapeError: if what is fed has another shape than the tensor.
        """
        if self._closed:
            raise TraceError("Attempted to use a closed Session.")
        if options is not None or run_metadata is not None:
            raise ArgumentError("Session.run: options and run_metadata must be None")
        feeds = feed_dict or {}
        if not isinstance(feeds, Mapping):
            raise ArgumentTypeError(
                f"Session.run: expected a dict as feed_dict; received {feeds!r}"
            )
        key = _key(fetches, feeds)
        try:
            plan = self._plans.get(key)
        except TypeError:  # what cannot be part of a key is no fetch
            plan = self._plan(fetches, feeds)
        if plan is None:
            plan = self._plans[key] = self._plan(fetches, feeds)
        return plan(feeds.values())

    def _plan(self, fetches: Any, feeds: Any) -> Plan:
        fetches = tree.map_structure(
            lambda x: x.tensors if isinstance(x, Summary) else x, fetches
        )
        leaves = [self._fetched(x) for x in tree.flatten(fetches)]
        kind = Plan if self.master is None else RemotePlan
        return kind(self, leaves, [self._fed(x) for x in feeds], tree.packer(fetches))

    def _fetched(self, x: Any) -> Any:
        try:
            found = self.graph.as_graph_element(x)
        except ToolkitError as error:
            raise ArgumentError(
                f"Session.run: fetch {x!r} is no tensor or operation: {error}"
            ) from None
        if isinstance(found, (GraphTensor, GraphOperation)):
            if found.graph is not self.graph:
                raise ArgumentError(
                    f"Session.run: {x!r} is not in this session's graph"
                )
        elif not isinstance(found, (Tensor, Variable)):
            raise ArgumentTypeError(
                f"Session.run: fetch {x!r} has invalid type {type(x).__name__}; "
                "expected a tensor, an operation or a name of one"
            )
        return found

    def _fed(self, x: Any) -> GraphTensor:
        try:
            found = self.graph.as_graph_element(x)
        except ToolkitError as error:
            raise ArgumentError(f"Session.run: feed_dict: {error}") from None
        if not isinstance(found, GraphTensor) or found.graph is not self.graph:
            raise ArgumentTypeError(
                "Session.run: expected tensors of this session's graph as keys of "
                f"feed_dict; received {x!r}"
            )
        return found

    # --- state ------------------------------------------------------------------------

    def cell(self, variable: Any) -> Variable:
        """What holds the value of a Variable here; those of layers are global."""
        if isinstance(variable, Variable):
            return variable
        if variable not in self._cells:
            *scopes, name = variable.path.split("/")
            zeros = np.zeros(variable.shape, dtypes.numpy_dtype(variable.dtype))
            with root_scope(tuple(scopes)):
                self._cells[variable] = Variable(
                    zeros, dtype=variable.dtype, autocast=False, name=name
                )
            self._of_cells[self._cells[variable]] = variable
        return self._cells[variable]

    def generator(self, seed: GraphSeed) -> SeedGenerator:
        """The random numbers of an operation here: new ones at each run."""
        if seed not in self._generators:
            found = self._generators[seed] = SeedGenerator(seed.first_seed)
            self._of_states[found.state] = f"random/{len(self._of_states)}"
        return self._generators[seed]

    def variable_of(self, cell: Variable) -> Any:
        """The Variable of the graph whose value this would hold; None: of no graph."""
        return self._of_cells.get(cell)

    def state_name(self, cell: Variable) -> str | None:
        """What programs call the state of random numbers; None of other Variables."""
        return self._of_states.get(cell)

    def next_program(self) -> int:
        """A number for a program."""
        return next(self._programs)

    def set_value(self, variable: Any, value: Any) -> None:
        """Give a Variable a value here."""
        if self.master is not None and isinstance(variable, GraphVariable):
            task, device = self.master.task_of(variable.device, variable.path)
            dtype = dtypes.numpy_dtype(variable.dtype)
            self.master.assign(task, variable.path, np.asarray(value, dtype))
            return
        self.cell(variable).assign(value)
        self.initialized.add(variable)

    def close(self) -> None:
        """Forget all values; no more can be run."""
        self._closed = True
        if self.master is not None:
            self.master.close()
        self._cells.clear()
        self._plans.clear()

    @contextmanager
    def as_default(self) -> Iterator[Session]:
        """Let `tensor.eval()` and `operation.run()` use this session inside."""
        local.sessions.append(self)
        try:
            yield self
        finally:
            local.sessions.remove(self)

    def __enter__(self) -> Session:
        scopes = self.graph.as_default(), self.as_default()
        for scope in scopes:
            scope.__enter__()
        self._entered.append(scopes)
        return self

    def __exit__(self, *exception: Any) -> None:
        for scope in reversed(self._entered.pop()):
            scope.__exit__(*exception)
        self.close()


class InteractiveSession(Session):
    """A Session that is the default one from the start, until it is closed."""

    def __init__(
        self, target: str = "", graph: Graph | None = None, config: Any = None
    ) -> None:
        super().__init__(target, graph, config)
        local.sessions.append(self)

    def close(self) -> None:
        """Be no longer the default session, and forget all values."""
        if self in local.sessions:
            local.sessions.remove(self)
        super().close()


def get_default_session() -> Session | None:
    """The session of the innermost `with session:`, None outside."""
    found = local.sessions
    return found[-1] if found else None


def _key(fetches: Any, feeds: Any) -> tuple[Any, ...]:
    """What is fetched and fed, in which structure."""
    if type(fetches) is list:  # mostly without others inside, which this tells quickly
        for x in fetches:
            if isinstance(x, (list, tuple, dict)):
                break
        else:
            return list, *fetches, "fed", *feeds
    return tree.signature(fetches), *tree.flatten(fetches), "fed", *feeds
