"""Common part of layers that run in Python: a graph contains no strings or tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Unpack

import numpy as np

from toolkit import dtypes, tree
from toolkit.console.tracebacks import filter_traceback
from toolkit.core.composites import Composite
from toolkit.core.convert import is_strings
from toolkit.core.dialects import dialect_of
from toolkit.core.host_calls import call_on_host, host_call_error, needs_host_call
from toolkit.core.strings import as_array, decode_bytes
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.layers.layer import Layer
from toolkit.ops.symbolic import any_symbolic
from toolkit.type_aliases import Array, RegularizedLayerOptions, TensorLike

_MOST_FILLED = 1 << 22  # padded characters or words per block


def host_array(layer: Any, x: TensorLike) -> Array:
    """Return `x` as a NumPy array; strings, also in nested lists, as an array of str.

    Raises:
        ArgumentTypeError: values that are neither all strings nor all numbers.
    """
    if isinstance(x, (Tensor, Variable)):
        value = x.value if isinstance(x, Variable) else x
        array = value.static_value()
        if array is None:
            raise host_call_error(layer)
        return np.asarray(array)
    if hasattr(x, "detach"):  # a torch tensor
        x = x.detach().cpu()
    try:
        array = as_array(x)
    except ValueError:
        raise ArgumentError(
            f"{type(layer).__name__} {layer.name!r}: expected rows of equal length; "
            "received a ragged list"
        ) from None
    if array.dtype.kind == "O" and not is_strings(array):
        numbers = np.asarray(array.tolist())
        array = array if numbers.dtype.kind in "OSU" else numbers
    return text_array(layer, array) if array.dtype.kind in "OSU" else array


def text_array(layer: Any, array: Array) -> Array:
    """Return an array of str objects from an array of str or bytes.

    Raises:
        ArgumentTypeError: values that are not strings.
    """
    flat = array.reshape(-1).tolist()
    kinds = set(map(type, flat))
    for kind in kinds:
        if not issubclass(kind, (str, bytes)):
            of_text = getattr(layer, "compute_dtype", None) == dtypes.STRING
            expected = "strings" if of_text else "strings or numbers, not both"
            example = next(x for x in flat if type(x) is kind)
            is_missing = example is None or example != example
            fix = "; replace missing values, as with fillna" if is_missing else ""
            raise ArgumentTypeError(
                f"{type(layer).__name__} {layer.name!r}: expected {expected}; received "
                f"{example!r} ({kind.__name__}){fix}"
            )
    if kinds == {str} and array.dtype.kind == "O":
        return array
    encoding = getattr(layer, "encoding", "utf-8")
    flat = [decode_bytes(x, encoding) if isinstance(x, bytes) else str(x) for x in flat]
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(array.shape)


def blocks_of(lengths: list[int]) -> list[Array]:
    """Return the indices of rows in blocks; each block is padded to its longest row.

    All rows are one block, in their order, unless a few long rows would need far more
    memory by padding; then shorter rows are first.
    """
    if max(lengths, default=0) * len(lengths) <= _MOST_FILLED:
        return [np.arange(len(lengths))]
    order = np.argsort(lengths, kind="stable")
    blocks, first = [], 0
    for last, row in enumerate(order.tolist()):
        if last > first and (last + 1 - first) * lengths[row] > _MOST_FILLED:
            blocks.append(order[first:last])
            first = last
    return [*blocks, order[first:]]


def refuse_sparse(layer: Any, sparse: bool, ragged: bool = False) -> None:
    """Raise if sparse or ragged results are requested."""
    for name, is_requested in (("sparse", sparse), ("ragged", ragged)):
        if is_requested:
            raise ArgumentError(
                f"{type(layer).__name__}: `{name}=True` cannot be used: there are no "
                f"{name} tensors"
            )


def batches_of(data: Any, steps: int | None = None) -> Iterator[Any]:
    """Return the inputs in each batch of a data set; the first of a tuple (x, y)."""
    if hasattr(data, "num_batches") and hasattr(data, "__getitem__"):
        batches = map(data.__getitem__, range(data.num_batches))
    else:
        batches = iter(data)
    for batch in islice(batches, steps):
        pair = isinstance(batch, tuple) and batch and not isinstance(batch[0], str)
        yield batch[0] if pair else batch


def is_whole(data: Any) -> bool:
    """Return whether `data` contains all samples and is not an iterable of batches."""
    return isinstance(data, (str, bytes, list, tuple)) or not isinstance(data, Iterable)


class HostLayer(Layer):
    """Base class of layers that compute in NumPy, outside of compiled functions.

    `call` receives NumPy arrays, with strings as objects.
    """

    supports_jit = False
    runs_before_program = True

    def __init__(self, **kwargs: Unpack[RegularizedLayerOptions]) -> None:
        super().__init__(**kwargs)
        self._allow_non_tensor_positional_args = True
        self.built = True

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if any_symbolic(inputs):
            return super().__call__(inputs, *args, **kwargs)
        if isinstance(inputs, Composite):
            return inputs.call_layer(self, (inputs, *args), kwargs)
        if state.trace is not None and self._runs_before_program(inputs):
            return call_on_host(self, (inputs, *args), kwargs)
        training = kwargs.pop("training", None)
        try:
            arguments = (self._arrays(inputs), *args)
            outputs = self._run(arguments, kwargs, training)
        except Exception as error:
            filter_traceback(error)
            raise
        dialect = state.dialect or dialect_of(tree.flatten(inputs))
        return outputs if dialect is None else dialect.wrap(outputs)

    def _runs_before_program(self, inputs: object) -> bool:
        """Return whether the active trace records the call for the host."""
        return any(map(needs_host_call, tree.flatten(inputs)))

    def _arrays(self, inputs: Any) -> Any:
        return host_array(self, inputs)


class AdaptableLayer(HostLayer):
    """Base class of layers that learn from data by `adapt`, batch by batch."""

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Learn from data, all at once or batch by batch; reset the state first.

        Args:
            data: an array or list of samples, or an iterable of batches: x or (x, y).
            steps: the number of batches; None for all.
        """
        self.reset_state()
        if is_whole(data) or hasattr(data, "__array__"):
            array = host_array(self, data)
            self.update_state(array[:, None] if array.ndim == 1 else array)
        else:
            for batch in batches_of(data, steps):
                self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Accumulate one batch of data for `adapt`.

        Args:
            data: a batch.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be adapted")

    def finalize_state(self) -> None:
        """Compute the state of the layer from the accumulated data."""

    def reset_state(self) -> None:
        """Reset the accumulated data."""
