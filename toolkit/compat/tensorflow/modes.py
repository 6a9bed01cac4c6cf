"""Whether operations run at once, as in TensorFlow 2, or build a graph, as in 1."""

from __future__ import annotations

from toolkit.tensor import state


class _Mode:
    """The mode of the process; `compat.v1` changes it."""

    is_eager = True


mode = _Mode()


def executing_eagerly() -> bool:
    """Whether operations run at once.

    They do not inside of a traced function, nor after
    `compat.v1.disable_eager_execution()`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.executing_eagerly()
        True
    """
    return mode.is_eager and state.trace is None
