"""Padding of sequences, and windows of a long sequence, as in `keras.utils`."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.core.convert import convert
from toolkit.data.computed import check_format, compute_batches
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.type_aliases import Array, DTypeLike
from toolkit.utils.dataset_tensors import to_tensor

_SIDES = ("pre", "post")


def pad_sequences(
    sequences: Any,
    maxlen: int | None = None,
    dtype: DTypeLike = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: Any = 0.0,
) -> Array:
    """Pad sequences of different lengths to one array.

    Args:
        sequences: lists of numbers or strings, or arrays (length, ...).
        maxlen: the length of the result; None: the maximum length.
        dtype: dtype of the result; object for strings of any length.
        padding: "pre" or "post": the end at which `value` is added.
        truncating: "pre" or "post": the end at which elements are removed.
        value: value of the padding.

    Returns:
        (len(sequences), maxlen, ...).

    Raises:
        ArgumentError: if `sequences` are not sequences, or the dtype cannot represent
            the value.
        ShapeError: if elements differ in shape.

    Example:
        >>> from toolkit.utils import pad_sequences
        >>> pad_sequences([[1], [2, 3, 4]], maxlen=2).tolist()
        [[0, 1], [3, 4]]
    """
    for name, side in (("padding", padding), ("truncating", truncating)):
        if side not in _SIDES:
            raise unknown_choice(f"pad_sequences: {name}", side, _SIDES)
    if not hasattr(sequences, "__len__") or not all(
        hasattr(sequence, "__len__") for sequence in sequences
    ):
        raise ArgumentError(
            "pad_sequences: `sequences` must be a list of iterables with a length"
        )
    is_text = dtype is object or np.dtype(dtype).kind in "OSU"
    if isinstance(value, str) and not is_text:
        raise ArgumentError(
            f"pad_sequences: `dtype` {dtype} is not compatible with the value "
            f"{value!r}; use dtype=object for strings"
        )
    shapes = [np.asarray(s, dtype=dtype).shape[1:] for s in sequences if len(s)]
    if len(set(shapes)) > 1:
        raise ShapeError(
            "pad_sequences: the shape of samples is different from expected shape: "
            f"one for all; received {sorted(set(shapes))}"
        )
    if maxlen is None:
        maxlen = max(map(len, sequences), default=0)
    shape = (len(sequences), maxlen, *(shapes[0] if shapes else ()))
    result: Array = np.full(shape, value, dtype=dtype)
    for row, sequence in zip(result, sequences, strict=True):
        num_dropped = max(len(sequence) - maxlen, 0)
        truncated = sequence[num_dropped:] if truncating == "pre" else sequence[:maxlen]
        if len(truncated):
            target = (
                slice(-len(truncated), None)
                if padding == "pre"
                else slice(len(truncated))
            )
            row[target] = np.asarray(truncated, dtype=dtype)
    return result


def timeseries_dataset_from_array(
    data: Any,
    targets: Any,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
    format: str = "tf",
) -> Any:
    """Return batches of windows of a time series.

    Window i starts at step `start_index + i * sequence_stride`, and contains every
    `sampling_rate`-th step.

    Args:
        data: (steps, ...).
        targets: (steps, ...): the target of a window is at its first step; or None.
        sequence_length: steps in a window.
        sequence_stride: steps between the starts of two windows.
        sampling_rate: steps between two elements of a window.
        batch_size: windows per batch; None: elements without a batch axis.
        shuffle: whether the order is random.
        seed: seed of the order.
        start_index: the first step to use.
        end_index: the step after the last one to use.
        format: "tf" or "grain"; no effect: toolkit has one kind of data set.

    Returns:
        A `toolkit.data.Dataset` of tensors (batch, sequence_length, ...), or of pairs
        of these and targets (batch, ...).

    Raises:
        ArgumentError: if an argument does not fit the length of the data.

    Example:
        >>> import numpy as np
        >>> from toolkit.utils import timeseries_dataset_from_array
        >>> x = np.arange(6)
        >>> windows = timeseries_dataset_from_array(x, x + 10, sequence_length=3)
        >>> [(x.tolist(), y.tolist()) for x, y in windows]
        [([[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]], [10, 11, 12, 13])]
    """
    _check_windows(len(data), sampling_rate, sequence_stride, start_index, end_index)
    _check_length(len(data), sequence_length, sampling_rate, start_index, end_index)
    check_format("timeseries_dataset_from_array", format)
    start = start_index or 0
    end = len(data) if end_index is None else end_index
    count = end - start - (sequence_length - 1) * sampling_rate
    steps = np.arange(sequence_length) * sampling_rate
    series = _as_array(data)
    target_array = None
    if targets is not None:
        target_array = _as_array(targets)[start:end]
        if not len(target_array):
            raise ArgumentError(
                f"timeseries_dataset_from_array: expected targets from step {start} "
                f"on; received {len(targets)} targets for {len(data)} steps of data"
            )
        count = min(count, len(target_array))
    starts = np.arange(0, count, sequence_stride)

    def compute_batch(rows: Array) -> Any:
        x = series[start + starts[rows, None] + steps]
        return x if target_array is None else (x, target_array[starts[rows]])

    converter = to_tensor if format == "tf" else None
    return compute_batches(
        len(starts), compute_batch, batch_size, shuffle, seed, converter
    )


def _check_length(
    steps: int, length: int, rate: int, start: int | None, end: int | None
) -> None:
    """Raise unless a window fits the steps of the data."""
    first, last = start or 0, steps if end is None else end
    if length < 1:
        raise ArgumentError(
            "timeseries_dataset_from_array: `sequence_length` must be higher than 0; "
            f"received {length}"
        )
    covered = (length - 1) * rate + 1
    if covered > last - first:
        bounds = (("start_index", start), ("end_index", end), ("sampling_rate", rate))
        arguments = [f"{n}={x}" for n, x in bounds if x not in (None, 0, 1)]
        raise ArgumentError(
            f"timeseries_dataset_from_array: a window of sequence_length={length} "
            f"covers {covered} steps; the data has {last - first} "
            f"({', '.join([f'{steps} rows', *arguments])}). Use a sequence_length of "
            f"at most {max(last - first - 1, 0) // rate + 1}"
        )


def _as_array(data: object) -> Array:
    """Return data as an array; Python numbers become float32 or int32."""
    if isinstance(data, (list, tuple)):
        data = convert(data)
    return np.asarray(data)


def _check_windows(
    steps: int, rate: int, stride: int, start: int | None, end: int | None
) -> None:
    lower_bound = "`start_index`" if start else "0"
    limits = (
        ("start_index", start, 0, "0 or greater"),
        ("end_index", end, (start or 0) + 1, f"higher than {lower_bound}"),
        ("sampling_rate", rate, 1, "higher than 0"),
        ("sequence_stride", stride, 1, "higher than 0"),
    )
    for name, value, minimum, bound in limits:
        if value is None or minimum <= value < steps:
            continue
        expected = bound if value < minimum else "lower than the length of the data"
        raise ArgumentError(
            f"timeseries_dataset_from_array: `{name}` must be {expected}. Received: "
            f"{name}={value}, for data of length {steps}"
        )
