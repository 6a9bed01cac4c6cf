"""`tf.function` and `tf.TensorSpec`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from toolkit import data, tree
from toolkit.compat.tensorflow import config, tensor_classes
from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.arrays import convert_to_tensor
from toolkit.compat.tensorflow.autograph import converted
from toolkit.compat.tensorflow.autograph.loops import RunEagerly
from toolkit.compat.tensorflow.modes import NeedsJob, NeedsValues, local
from toolkit.compat.tensorflow.tensor_classes import wrap_tensors
from toolkit.compiler import distribution_context
from toolkit.console.frames import warn, warn_once
from toolkit.core.composites import Composite, has_composites
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.data.batch_shards import LocalRows
from toolkit.dtypes import STRING
from toolkit.errors import SignatureError, UnsupportedError
from toolkit.functions.distributed import DistributedFunction
from toolkit.ops import zeros

if TYPE_CHECKING:
    from toolkit.ir import Spec

_PLAIN = (bool, int, float, complex, str, bytes)


class ConcreteFunction:
    """A traced function for arguments that fit TensorSpecs.

    Args:
        function: the function.
        signature: its arguments, (args, kwargs), with TensorSpecs for tensors.
    """

    def __init__(self, function: Function, signature: Any) -> None:
        self.function = function
        self.structured_input_signature = signature
        self.name: str = function.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        specs = tree.flatten(self.structured_input_signature)
        args = tuple(map(_convert_to_spec, self.structured_input_signature[0], args))
        arguments = tree.flatten((args, kwargs))
        for spec, x in zip(specs, arguments, strict=False):
            if isinstance(spec, data.TensorSpec) and not spec.accepts(x.shape):
                raise SignatureError(
                    f"{self.name}: expected a tensor of shape {spec.shape}; received "
                    f"{tuple(x.shape)}"
                )
        return self.function(*args, **kwargs)


class Function(tensor_classes.Function):
    """A Python function with its traces; see `function`."""

    autograph = True  # whether Python's control flow can depend on tensors
    _runs_eagerly = False  # True after an operation that a graph cannot contain
    _in_job: JobFunction | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if config.functions_run_eagerly():
            return self.python_function(*args, **kwargs)
        if state.trace is None and self._needs_job(args, kwargs):
            return self.in_job()(*args, **kwargs)
        if state.trace is None and self._runs_eagerly:
            return self._call_eagerly(args, kwargs)
        if state.trace is None and has_composites((args, kwargs)):
            self._warn_of_composites()
            return self._call_eagerly(args, kwargs)
        try:
            with _mark_tracing():
                return wrap_tensors(super().__call__(*args, **kwargs))
        except NeedsJob:
            if state.trace is not None:
                raise  # the calling function is computed by the job
            return self.in_job()(*args, **kwargs)
        except (RunEagerly, NeedsValues) as reason:
            if state.trace is not None:
                raise  # the calling function also runs eagerly
            self._run_eagerly(reason)
        return self._call_eagerly(args, kwargs)

    def _needs_job(self, args: object, kwargs: object) -> bool:
        """Return whether the processes of a job compute the call together."""
        if distribution_context.current() is None:
            return False
        return self._in_job is not None or any(
            isinstance(leaf, LocalRows) for leaf in tree.flatten((args, kwargs))
        )

    def in_job(self) -> JobFunction:
        """Return the function that all processes of the job compute together."""
        if self._in_job is None:
            self._in_job = JobFunction(
                self.python_function,
                self.input_signature,
                self.reduce_retracing,
                self.jit_compile,
            )
            self._in_job.autograph = self.autograph
        return self._in_job

    def _warn_of_composites(self) -> None:
        """Warn once that a trace cannot contain the arguments."""
        warn_once(
            self,
            f"{self.name} has a ragged or a sparse argument, which a graph cannot "
            "contain: the call runs eagerly; to compile it, pass a dense tensor",
        )

    def _call_eagerly(self, args: Any, kwargs: Any) -> Any:
        """Call the Python function with the arguments and results of a trace."""
        if self.input_signature is not None:
            args, kwargs = self.fit_arguments(args, kwargs), {}
        return _as_tensors(self.python_function(*args, **kwargs))

    def fit_arguments(self, args: Any, kwargs: Any) -> Any:
        """Convert the arguments to tensors of the input_signature, and check them."""
        if kwargs:
            bound = inspect.signature(self.python_function).bind(*args, **kwargs)
            args = bound.args
        specs = self.input_signature or ()
        if len(args) == len(specs):
            args = tuple(map(_convert_to_spec, specs, args))
        return super().fit_arguments(args, {})

    def _run_eagerly(self, reason: Exception) -> None:
        """Run eagerly from now on, after a warning with the reason."""
        self._runs_eagerly = True
        if isinstance(reason, NeedsValues):
            explanation = f"calls {reason.function}, which needs values of tensors"
            advice = "to compile it, remove that call"
        else:
            explanation = "loops over a data set, which a graph cannot contain"
            advice = "apply tf.function to the step in the loop instead"
        warn(f"{self.name} {explanation}: it runs eagerly; {advice}")

    @property
    def traced_function(self) -> Callable[..., Any]:
        """Return the function with rewritten control flow, unless `autograph` is
        False."""
        function = self.python_function
        function = converted(function) if self.autograph else function
        return lambda *args, **kwargs: _as_tensors(function(*args, **kwargs))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Return the bound method of an instance, which has separate traces."""
        method: Any = super().__get__(instance, owner)
        if method is not self:
            method.autograph = self.autograph
        return method

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function for such arguments; a TensorSpec can replace a tensor.

        It is traced immediately, unless an extent is dynamic.
        """
        leaves = tree.flatten((args, kwargs))
        if not args and not kwargs and self.input_signature is not None:
            args = tuple(self.input_signature)
            leaves = tree.flatten(args)
        specs = [leaf for leaf in leaves if isinstance(leaf, data.TensorSpec)]
        if not specs:
            return super().get_concrete_function(*args, **kwargs)
        if all(None not in (spec.shape or (None,)) for spec in specs):
            args_of_trace = tree.map_structure(_example, args)
            try:
                with _mark_tracing():
                    super().get_concrete_function(*args_of_trace, **kwargs)
            except (RunEagerly, NeedsValues) as reason:
                self._run_eagerly(reason)
        return ConcreteFunction(self, (args, kwargs))

    def experimental_get_tracing_count(self) -> int:
        """Return the number of traces."""
        return self.trace_count


class JobFunction(Function, DistributedFunction):
    """A function that all processes of a job compute together, on global batches."""

    def in_job(self) -> JobFunction:
        return self

    def _needs_job(self, args: object, kwargs: object) -> bool:
        return False  # it is the function of the job

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if config.functions_run_eagerly():
            raise self._error("tf.config.run_functions_eagerly(True)")
        return super().__call__(*args, **kwargs)

    def _call_eagerly(self, args: object, kwargs: object) -> NoReturn:
        raise self._error("an operation that needs values, or a ragged argument")

    def _error(self, reason: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name}: expected a function that is traced, because the processes "
            f"of the job compute it together; received {reason}"
        )


@contextmanager
def _mark_tracing() -> Iterator[None]:
    """Mark the call of a function that can be traced, outside of any trace."""
    outer, local.is_tracing = local.is_tracing, state.trace is None or local.is_tracing
    try:
        yield
    finally:
        local.is_tracing = outer


def _convert_to_spec(spec: Spec, argument: Any) -> Any:
    """Convert an argument to its spec: lists to tensors; cast numbers and arrays."""
    if isinstance(spec, data.TensorSpec):
        is_plain = not isinstance(argument, (Tensor, Variable))
        if spec.dtype == STRING:
            return argument
        return convert_to_tensor(argument, spec.dtype if is_plain else None)
    if (
        isinstance(spec, dict)
        and isinstance(argument, dict)
        and spec.keys() == argument.keys()
    ):
        return {key: _convert_to_spec(spec[key], argument[key]) for key in argument}
    if isinstance(spec, (list, tuple)) and isinstance(argument, (list, tuple)):
        if len(spec) == len(argument) and not hasattr(argument, "_fields"):
            return type(argument)(map(_convert_to_spec, spec, argument))
    return argument


def _as_tensors(result: Any) -> Any:
    """Convert the numbers, arrays and strings of a result to tensors."""

    def of(leaf: Any) -> Any:
        if state.trace is not None and isinstance(leaf, Composite):
            raise NeedsValues("a function that returns a ragged or a sparse tensor")
        is_plain = isinstance(leaf, (*_PLAIN, np.ndarray, np.generic))
        return convert_to_tensor(leaf) if is_plain else leaf

    return tree.map_structure(of, result)


def _example(leaf: Any) -> Any:
    if isinstance(leaf, data.TensorSpec):
        return zeros(leaf.shape, leaf.dtype)
    return leaf


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Any = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: Any = None,
    experimental_autograph_options: Any = None,
    experimental_attributes: Any = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: Any = None,
) -> Any:
    """Trace a function of tensors into graphs that are compiled.

    Args:
        func: the function; without it, the result is a decorator.
        input_signature: TensorSpecs of the arguments, None for any.
        autograph: whether Python's control flow, also in called functions, can depend
            on
            tensors: see `tf.autograph`. If False, such control flow raises an error
            that names `tf.cond` and `tf.while_loop`.
        jit_compile: None and True compile; False runs only NumPy kernels.
        reduce_retracing: whether Python numbers become 0-d tensors.
        experimental_relax_shapes: legacy name of reduce_retracing.
        experimental_compile: legacy name of jit_compile.
        experimental_implements, experimental_autograph_options,
            experimental_attributes, experimental_follow_type_hints: only None.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> @tf.function(jit_compile=True)
        ... def model_fn(x, y, z):
        ...     return tf.reduce_sum(x + y * z)
        >>> one = tf.ones((2, 2))
        >>> float(model_fn(one, one, one))
        8.0
    """
    refuse(
        "function",
        experimental_implements=(experimental_implements, None),
        experimental_autograph_options=(experimental_autograph_options, None),
        experimental_attributes=(experimental_attributes, None),
        experimental_follow_type_hints=(experimental_follow_type_hints, None),
    )
    jit = experimental_compile if jit_compile is None else jit_compile
    options = {
        "input_signature": input_signature,
        "reduce_retracing": bool(reduce_retracing or experimental_relax_shapes),
        "jit_compile": "auto" if jit is None else jit,
    }

    def make(f: Callable[..., Any]) -> Function:
        traced = Function(f, **options)
        traced.autograph = bool(autograph)
        return traced

    return make if func is None else make(func)
