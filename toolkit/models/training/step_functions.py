"""Steps as compiled programs, or as Python code if that is not possible."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from toolkit import inspection, ops, tree
from toolkit.compiler import distribution_context
from toolkit.compiler.shared_steps import shared_step
from toolkit.console.frames import warn_once
from toolkit.core.composites import has_composites
from toolkit.core.convert import is_strings
from toolkit.core.tensor import Tensor
from toolkit.core.trace import StatelessScope
from toolkit.errors import HostCallError, OutOfRangeError, RankLostError
from toolkit.functions.function import Function, NewResultsError
from toolkit.ir import Spec
from toolkit.layers.call import context as layer_context
from toolkit.models.training.compile_checks import describe_indices
from toolkit.models.training.sources import Source
from toolkit.models.training.structure import Structure
from toolkit.thread_state import restore_on_error

Step = Callable[[Any], Any]
_TENSOR = {Tensor}


# The fix of an error about a value that does not exist in a traced step.
EAGER_FIX = "compile the model with run_eagerly=True"


class _StepFunction(Function):
    """Traced step: a batch of strings differs in each call."""

    fix_of_missing_values = EAGER_FIX
    fixes_strings = False
    # Each length of texts has a program. A length that occurs once is not worth one.
    compiles_new_results = False


class CompiledStep:
    """Step as one traced program per signature of its batches.

    Layers on strings run in Python before the program. A step that cannot be traced
    runs as Python code, after a warning.

    Args:
        step: the traced function; a change of the model's structure retraces it.
        jit_compile: the same as in `compile`.
        model: the model of the step.
    """

    def __init__(self, step: Step, jit_compile: bool | str, model: Any = None) -> None:
        self.step = step
        self.jit_compile = jit_compile
        self.shapes: list[tuple[int | None, ...]] = []  # of the arrays of a batch
        self._model = model
        self._structure = Structure(model)
        self._functions: dict[Any, Function] = {}
        self._first_batch_spec: Any = None  # a structure of specs like the first batch
        self._context = distribution_context.current()
        self._version = 0
        self._past_traces = 0  # the number of discarded traces
        # The step as Python code, if it cannot be traced.
        self._python_step: EagerStep | None = None

    @property
    def trace_count(self) -> int:
        """Return the number of traces of the step that were compiled."""
        count = sum(function.trace_count for function in self._functions.values())
        return self._past_traces + count

    def __call__(self, batch: Any) -> Any:
        if not _is_flat(batch) and has_composites(batch):
            warn_of_python(self._model, "a graph cannot contain the ragged rows of x")
            return EagerStep(self.step)(batch)
        if self._python_step is not None:
            return self._python_step(batch)
        while True:
            function, leaves = self._function_for(batch)
            reason = None
            try:
                return function(*leaves)
            except OutOfRangeError as error:
                if error.from_rank is not None:
                    raise
                raise OutOfRangeError(
                    f"{function.name}: {error}: a label, or an input of an Embedding "
                    f"({describe_indices(batch)}; to find the layer, compile with "
                    "run_eagerly=True)"
                ) from error
            except NewResultsError:
                break
            except RankLostError:
                if self._context is None:
                    raise
                self._context.recovery.recover(self._version)
            except Exception as error:
                # Code of a model can expect other strings than those of a trace.
                is_new = not function.trace_count and any(map(is_strings, leaves))
                if not (is_new or isinstance(error, HostCallError)):
                    raise
                reason = f"{error}".partition("\n")[0]
                break
        if reason is None:
            return EagerStep(self.step)(batch)
        return self._run_as_python(batch, reason)

    @property
    def host_seconds(self) -> float:
        """Return the seconds of the layers on strings in the slowest step."""
        functions = self._functions.values()
        return max((function.host_seconds for function in functions), default=0.0)

    def prepare(self, batch: object) -> None:
        """Run the layers on strings for a later batch, if they are known.

        Args:
            batch: the batch, with PreparedStrings.
        """
        if self._python_step is None and not has_composites(batch):
            key, leaves = self._flatten(batch)
            function = self._functions.get(key)
            if function is not None:
                function.prepare(*leaves)

    def _run_as_python(self, batch: object, reason: str) -> object:
        """Run the step, and all later ones, as Python code."""
        step = EagerStep(self.step, reason)
        outputs: object = step(batch)
        self._python_step = step
        warn_of_python(self._model, reason)
        return outputs

    @property
    def reason(self) -> str:
        """Return the reason why there is no program, or ""."""
        return "" if self._python_step is None else self._python_step.reason

    def __getstate__(self) -> dict[str, Any]:
        """Copy without traces: they use the Variables of the original.

        The distribution of the traces belongs to this process.
        """
        dropped = {"_functions": {}, "_past_traces": 0, "_context": None}
        return {**self.__dict__, **dropped}

    def _function_for(self, batch: Any) -> tuple[Function, Any]:
        context = distribution_context.current()
        if self._context is not context:
            self._functions.clear()
            self._context = context
        if context is not None and context.recovery.version != self._version:
            for cached in self._functions.values():
                cached.invalidate()
            self._version = context.recovery.version
        if self._structure.has_changed():
            self._past_traces = self.trace_count
            self._functions.clear()
        key, leaves = self._flatten(batch)
        function = self._functions.get(key)
        if function is None:
            function = self._make(key, batch)
        return function, leaves

    def _flatten(self, batch: Any) -> tuple[Any, Any]:
        if type(batch) is Tensor:
            return Tensor, (batch,)
        if _is_flat(batch):
            return len(batch), batch
        return tree.signature(batch), tree.flatten(batch)

    def _make(self, key: Any, batch: Any) -> Function:
        structure = tree.structure_of(batch)
        # No reference to `self`: a replaced step is released at once, with its weights.
        step, record_structure = self.step, self._structure.record_current

        def run(*leaves: Any) -> Any:
            outputs = step(tree.pack_sequence_as(structure, leaves))
            # including everything that the first call of a model has built
            record_structure()
            return outputs

        run.__name__ = getattr(step, "__name__", "step")
        if self._first_batch_spec is None:
            self._first_batch_spec = tree.map_structure(_spec_of, batch)
        function = _StepFunction(
            run, jit_compile=self.jit_compile, distribution=self._context
        )
        function.free_traces.shapes = self.shapes
        self._functions[key] = function
        return function

    def inspect(self, batch: Any = None) -> inspection.Inspection | None:
        """Return the compiler's report of the step for this batch or a similar one."""
        if self._python_step is not None:
            return None
        if batch is None:
            if self._first_batch_spec is None:
                return None
            batch = tree.map_structure(_zeros_like, self._first_batch_spec)
        function, leaves = self._function_for(batch)
        try:
            return function.inspect(*leaves)
        except NewResultsError:
            function.compiles_new_results = True
            try:
                return function.inspect(*leaves)
            finally:
                function.compiles_new_results = False
        except HostCallError as error:
            self._python_step = EagerStep(self.step, f"{error}".partition("\n")[0])
            return None


class Preparation:
    """Calls of the layers on strings for later batches, in the thread of a pipeline.

    Args:
        model: the model.
        function: the attribute that calls the step.
    """

    def __init__(self, model: object, function: str) -> None:
        self._model, self._function = model, function

    @property
    def is_worthwhile(self) -> bool:
        """Return whether the layers take longer than Python needs to change threads."""
        step = getattr(self._model, self._function)
        if type(step) is not CompiledStep:
            return False
        return step.host_seconds > sys.getswitchinterval()

    def run(self, batch: object) -> None:
        """Run the layers for a batch with PreparedStrings."""
        step = getattr(self._model, self._function)
        if type(step) is CompiledStep:
            step.prepare(batch)


def for_batches(step: Any, source: Source) -> Any:
    """Set the shapes of the batches on a step without traces, and return the step.

    Args:
        step: the step.
        source: the source of its batches.
    """
    if type(step) is CompiledStep and not step.trace_count:
        step.shapes = source.shapes()
    return step


def _is_flat(batch: object) -> bool:
    """Return whether a batch is a tensor or a tuple of tensors, the fastest cases."""
    if type(batch) is tuple:
        return _TENSOR.issuperset(map(type, batch))
    return type(batch) is Tensor


def _spec_of(leaf: Any) -> Any:
    return leaf.spec if isinstance(leaf, Tensor) else leaf  # None, or strings


def _zeros_like(spec: Any) -> Any:
    return ops.zeros(spec.shape, spec.dtype) if isinstance(spec, Spec) else spec


class EagerStep:
    """Step that runs as Python code; its Variables change together at the end.

    Args:
        step: the function.
        reason: why it is not compiled.
        is_requested: whether the user requested it; then layers trace nothing, too.
    """

    def __init__(
        self, step: Step, reason: str = "", is_requested: bool = False
    ) -> None:
        self.step = step
        self.reason = reason
        self._is_requested = is_requested

    def __call__(self, batch: Any) -> Any:
        job = distribution_context.current()
        has_all_rows = job is None or job.auto_shard_dataset
        context = shared_step() if has_all_rows else nullcontext()
        mode = layer_context.override(is_eager=self._is_requested)
        with restore_on_error(), context, mode, StatelessScope() as scope:
            outputs = self.step(batch)
        writes = list(scope.writes.items())
        try:
            _assign(writes)
        except BaseException:  # an interrupt: finish, then re-raise it
            _assign(writes)
            raise
        return outputs

    def inspect(self, batch: Any = None) -> inspection.Inspection | None:
        """Return None: there is no graph."""
        return None


def _assign(writes: list[tuple[Any, Tensor]]) -> None:
    for variable, value in writes:
        variable.assign(value)


def warn_of_python(model: Any, reason: str) -> None:
    """Warn once that steps of a model run as Python code."""
    prefix = "" if model is None else f"{model.name}: "
    text = "the steps run as Python code, slower than a compiled program: "
    warn_once(model, f"{prefix}{text}{reason}")
