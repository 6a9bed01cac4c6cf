"""AutoGraph: Python's `if`, `while`, `for`, `and`, ... over tensors in `tf.function`.

`rewriting` and `early_exits` rewrite the source of a function so that its control flow calls
`operators`. These run Python's control flow for static values, and trace a `cond` or a
`while_loop` for a condition that is a tensor. Called functions are also rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.autograph.loops import set_loop_options
from toolkit.compat.tensorflow.autograph.operators import converted

__all__ = ["converted", "do_not_convert", "experimental", "to_graph"]


def to_graph(
    entity: Any, recursive: bool = True, experimental_optional_features: Any = None
) -> Any:
    """Rewrite the control flow of a function for traced tensors.

    Args:
        entity: a function or method.
        recursive: only True: called functions are also rewritten.
        experimental_optional_features: only None.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> def absolute(x):
        ...     return x if x > 0 else -x
        >>> int(tf.autograph.to_graph(absolute)(-2))
        2
    """
    refuse(
        "to_graph",
        recursive=(recursive, True),
        experimental_optional_features=(experimental_optional_features, None),
    )
    return converted(entity)


def do_not_convert(func: Callable[..., Any] | None = None) -> Any:
    """Exclude a function from the rewrite: a decorator."""
    if func is None:
        return do_not_convert
    marked: Any = func
    marked.autograph_do_not_convert = True
    return marked


experimental: SimpleNamespace = SimpleNamespace(
    do_not_convert=do_not_convert, set_loop_options=set_loop_options
)
