"""`tf.print`: prints the values of tensors in each call."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from toolkit import tree
from toolkit.compat.tensorflow.boundary import make_recordable
from toolkit.compat.tensorflow.modes import (
    NeedsValues,
    is_inferring_shapes,
    require_eager,
)
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.type_aliases import TensorLike

_TENSORS = (Tensor, Variable, StringTensor)


def print(
    *inputs: Any,
    output_stream: Any = None,
    summarize: int | None = None,
    sep: str = " ",
    end: str = "\n",
    name: str | None = None,
) -> None:
    """Print values, and the elements of tensors.

    Args:
        *inputs: tensors, nests of them, or any objects.
        output_stream: a stream, or "file://" and a path to append to; standard error
            if None, as in TensorFlow.
        summarize: the number of elements to show at each end of each axis; 3 if None,
            -1
            for all.
        sep: the separator of inputs.
        end: the end of the text.

    A `tf.function` that prints runs eagerly, after a warning: each call prints, but the
    function is not compiled.

    Raises:
        TraceError: in any other traced function, for example the training step of
            `fit`, where tensors have no values.

    Example:
        >>> import sys
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.print("x:", tf.range(9), output_stream=sys.stdout)
        x: [0 1 2 ... 6 7 8]
    """
    if is_inferring_shapes():
        return
    require_eager("print")
    edge = 3 if summarize is None else summarize
    line = sep.join(format_value(x, edge) for x in inputs) + end
    stream = sys.stderr if output_stream is None else output_stream
    if isinstance(stream, str) and stream.startswith("file://"):
        with open(stream.removeprefix("file://"), "a", encoding="utf-8") as file:
            file.write(line)
    elif hasattr(stream, "write"):
        stream.write(line)
    else:
        raise ArgumentError(
            'print: expected a stream or "file://..." as output_stream; received '
            f"{stream!r}"
        )


def format_value(x: TensorLike, edge: int = 3) -> str:
    """Return the text of a value, with `edge` elements at each end of an axis."""
    if isinstance(x, _TENSORS):
        return _array(x, edge)
    if isinstance(x, (list, tuple, dict)):
        packed = tree.map_structure(lambda leaf: _Shown(format_value(leaf, edge)), x)
        return repr(packed)
    return repr(x) if isinstance(x, np.ndarray) else str(x)


class _Shown(str):
    """Text that prints without quotes in a nest."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _array(x: TensorLike, edge: int) -> str:
    tensor = x.value if isinstance(x, Variable) else x
    if isinstance(tensor, Tensor) and tensor.static_value() is None:
        raise NeedsValues("print")
    array = np.asarray(x)
    show = _SHOWN.get(array.dtype.kind, str)
    if not array.ndim:
        return show(array[()])
    return np.array2string(
        array,
        formatter={"all": show},
        threshold=sys.maxsize if edge < 0 else 0,
        edgeitems=max(edge, 1),
        max_line_width=sys.maxsize,
    )


def _format_float(value: Any) -> str:
    """Format a float as C++: 6 digits (float64: 15) if they are exact, else 9 (17)."""
    digits, max_digits = (6, 9) if value.itemsize <= 4 else (15, 17)
    text = f"{value:.{digits}g}"
    return text if type(value)(text) == value else f"{value:.{max_digits}g}"


_SHOWN: dict[str, Any] = {
    "O": lambda value: f'"{value.decode(errors="replace")}"',
    "b": lambda value: str(int(value)),
    "f": _format_float,
}


print = make_recordable(print)
