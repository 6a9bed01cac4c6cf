"""Sessions: fetches are replayed as one compiled function."""

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
from toolkit.compat.tensorflow.v1.cluster.remote_plan import RemotePlan, master_of
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
from toolkit.type_aliases import TensorLike


class Summary:
    """Tensors to fetch by kind and tag; the fetched result is a dict of their
    values."""

    def __init__(self, tensors: dict[tuple[str, str], Any]) -> None:
        self.tensors = tensors


class Session:
    """A session that runs parts of a graph, and stores the values of its Variables.

    Args:
        target: "" to run in this process, or `target` of a `tf.train.Server`. Then the
            tasks of its cluster run the operations that are placed on them. This server
            runs operations without a device. Variables stay on the tasks after the
            session.
        graph: the graph; the default graph if None.
        config: a `ConfigProto`; stored. In a session on a cluster,
            `operation_timeout_in_ms` limits each run; otherwise it has no effect:
            threads and devices are settings of the process, `TOOLKIT_NUM_THREADS` and
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
        # For a session on a cluster: names of Variables and random states in programs.
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
        """Return the values of the fetches; only the necessary operations run.

        Args:
            fetches: a nest of tensors, Variables, operations or their names.
            feed_dict: tensor -> value; any tensor can be fed.
            options, run_metadata: only None.

        Returns:
            A nest like `fetches` of arrays; None for operations.

        Raises:
            FailedPreconditionError: if a Variable is read before its initialization.
            ArgumentError: if a required placeholder is not fed.
            ShapeError: if a fed value has another shape than the tensor.
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
        except TypeError:  # an unhashable value is not a fetch
            plan = self._plan(fetches, feeds)
        if plan is None:
            plan = self._plans[key] = self._plan(fetches, feeds)
        return plan(feeds.values())

    def _plan(self, fetches: Any, feeds: Any) -> Plan:
        fetches = tree.map_structure(
            lambda x: x.tensors if isinstance(x, Summary) else x, fetches
        )
        leaves = [self._resolve_fetch(x) for x in tree.flatten(fetches)]
        kind = Plan if self.master is None else RemotePlan
        return kind(
            self,
            leaves,
            [self._resolve_feed(x) for x in feeds],
            tree.make_packer(fetches),
        )

    def _resolve_fetch(self, x: TensorLike) -> Any:
        try:
            element = self.graph.as_graph_element(x)
        except ToolkitError as error:
            raise ArgumentError(
                f"Session.run: fetch {x!r} is no tensor or operation: {error}"
            ) from None
        if isinstance(element, (GraphTensor, GraphOperation)):
            if element.graph is not self.graph:
                raise ArgumentError(
                    f"Session.run: {x!r} is not in this session's graph"
                )
        elif not isinstance(element, (Tensor, Variable)):
            raise ArgumentTypeError(
                f"Session.run: fetch {x!r} has invalid type {type(x).__name__}; "
                "expected a tensor, an operation or a name of one"
            )
        return element

    def _resolve_feed(self, x: TensorLike) -> GraphTensor:
        try:
            element = self.graph.as_graph_element(x)
        except ToolkitError as error:
            raise ArgumentError(f"Session.run: feed_dict: {error}") from None
        if not isinstance(element, GraphTensor) or element.graph is not self.graph:
            raise ArgumentTypeError(
                "Session.run: expected tensors of this session's graph as keys of "
                f"feed_dict; received {x!r}"
            )
        return element

    # --- state ------------------------------------------------------------------------

    def cell(self, variable: Any) -> Variable:
        """Return the cell of a Variable in this session; Variables of layers are
        global."""
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
        """Return the random number generator of an operation in this session."""
        if seed not in self._generators:
            generator = self._generators[seed] = SeedGenerator(seed.first_seed)
            self._of_states[generator.state] = f"random/{len(self._of_states)}"
        return self._generators[seed]

    def variable_of(self, cell: Variable) -> Any:
        """Return the Variable of the graph for a cell, or None."""
        return self._of_cells.get(cell)

    def state_name(self, cell: Variable) -> str | None:
        """Return the name of a random state in programs; None for other Variables."""
        return self._of_states.get(cell)

    def next_program(self) -> int:
        """Return the number of a new program."""
        return next(self._programs)

    def set_value(self, variable: Any, value: Any) -> None:
        """Assign a value to a Variable in this session."""
        if self.master is not None and isinstance(variable, GraphVariable):
            task, device = self.master.task_of(variable.device, variable.path)
            dtype = dtypes.numpy_dtype(variable.dtype)
            self.master.assign(task, variable.path, np.asarray(value, dtype))
            return
        self.cell(variable).assign(value)
        self.initialized.add(variable)

    def close(self) -> None:
        """Discard all values; a closed session cannot run."""
        self._closed = True
        if self.master is not None:
            self.master.close()
        self._cells.clear()
        self._plans.clear()

    @contextmanager
    def as_default(self) -> Iterator[Session]:
        """Make this session the default for `tensor.eval()` and `operation.run()`
        inside."""
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

    def __exit__(self, *exception: object) -> None:
        for scope in reversed(self._entered.pop()):
            scope.__exit__(*exception)
        self.close()


class InteractiveSession(Session):
    """A Session that is the default one from its creation until it is closed."""

    def __init__(
        self, target: str = "", graph: Graph | None = None, config: Any = None
    ) -> None:
        super().__init__(target, graph, config)
        local.sessions.append(self)

    def close(self) -> None:
        """Close the session, which is no longer the default."""
        if self in local.sessions:
            local.sessions.remove(self)
        super().close()


def get_default_session() -> Session | None:
    """Return the session of the innermost `with session:`, None outside."""
    sessions = local.sessions
    return sessions[-1] if sessions else None


def _key(fetches: Any, feeds: Any) -> tuple[Any, ...]:
    """Return the cache key of fetches and feeds, with their structure."""
    if type(fetches) is list:  # fast path: usually without nested fetches
        for x in fetches:
            if isinstance(x, (list, tuple, dict)):
                break
        else:
            return list, *fetches, "fed", *feeds
    return tree.signature(fetches), *tree.flatten(fetches), "fed", *feeds
