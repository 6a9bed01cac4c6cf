"""The decorator that compiles functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit.functions import reverse_programs  # noqa: F401, it adds itself to tapes
from toolkit.functions.distributed import DistributedFunction
from toolkit.functions.function import Function


def function(
    func: Callable[..., Any] | None = None,
    *,
    input_signature: Sequence[Any] | None = None,
    reduce_retracing: bool = False,
    jit_compile: bool | str = "auto",
    distribute: bool = False,
) -> Any:
    """Trace a function of tensors into graphs that are optimized, planned and compiled.

    The Python code runs once per signature: shapes and dtypes of tensors, values of
    everything else. Later calls run the compiled program. The code may read and assign
    Variables. It may create Variables on the first call only, and must keep a reference
    to them. If the first call creates one, the code runs a second time, and may not
    create any then.

    Args:
        func: the function; without it, a decorator is returned.
        input_signature: a nest of specs (anything with `shape` and `dtype`, None for
            unknown extents) that the arguments must fit, in order.
        reduce_retracing: whether Python numbers become 0-d tensors, so that a new value
            does not cause a retrace.
        jit_compile: "auto" and True compile; False runs NumPy kernels only.
        distribute: whether the processes of a job compute each call together, as the
            steps of `fit`, by the current distribution. Each process passes the same
            batch, or its element of `distribute_dataset`. Results, gradients and
            Variables are those of one process. Without a distribution it has no effect.

    Returns:
        A function that runs the compiled program, or a decorator if `func` is None.

    Example:
        >>> import toolkit
        >>> @toolkit.function
        ... def affine(x, y):
        ...     return 2.0 * x + y
        >>> float(affine(toolkit.ops.ones(()), toolkit.ops.ones(())))
        3.0
    """
    options: dict[str, Any] = {
        "input_signature": input_signature,
        "reduce_retracing": reduce_retracing,
        "jit_compile": jit_compile,
    }
    kind = DistributedFunction if distribute else Function
    if func is None:
        return lambda f: kind(f, **options)
    return kind(func, **options)
