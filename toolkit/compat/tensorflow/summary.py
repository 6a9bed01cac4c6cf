"""`tf.summary`: event files for TensorBoard."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.errors import ArgumentError
from toolkit.models.callbacks.events import EventWriter
from toolkit.type_aliases import TensorLike

# The writers of the active `with` blocks, above the default writer.
_writers: list[SummaryWriter | None] = [None]
_step: list[int] = []


class SummaryWriter:
    """Writer of events to a folder; `as_default` selects it."""

    def __init__(self, logdir: str | PathLike[str]) -> None:
        self._events = EventWriter(Path(str(logdir)))
        weakref.finalize(self, self._events.close)

    @contextmanager
    def as_default(self, step: int | None = None) -> Iterator[SummaryWriter]:
        """Select this writer for the summaries inside, with a step if it is given."""
        _writers.append(self)
        outer = list(_step)
        if step is not None:
            _step[:] = [int(step)]
        try:
            yield self
        finally:
            _writers.pop()
            _step[:] = outer
            self.flush()

    def set_as_default(self, step: int | None = None) -> None:
        """Make this writer the default outside of `as_default`."""
        _writers[0] = self
        if step is not None:
            _step[:] = [int(step)]

    def flush(self) -> None:
        """Flush the events to the file."""
        self._events.flush()

    def close(self) -> None:
        """Close the file."""
        self._events.close()


def create_file_writer(
    logdir: str | PathLike[str],
    max_queue: int | None = None,
    flush_millis: int | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
) -> SummaryWriter:
    """Create a writer of a new event file in a folder.

    Args:
        logdir: the folder.
        max_queue, flush_millis: have no effect: events are written immediately.
        filename_suffix: only None.

    Example:
        >>> import tempfile
        >>> import toolkit.compat.tensorflow as tf
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with tf.summary.create_file_writer(folder).as_default():
        ...         tf.summary.scalar("loss", 0.5, step=1)
        True
    """
    refuse("create_file_writer", filename_suffix=(filename_suffix, None))
    return SummaryWriter(logdir)


def _write(kind: str, tag: str, value: TensorLike, step: Any) -> bool:
    writer = _writers[-1]
    if writer is None:
        return False
    if step is None and not _step:
        raise ArgumentError(
            f"summary.{kind}: expected a step for {tag!r}; received None"
        )
    getattr(writer._events, kind)(tag, value, int(_step[0] if step is None else step))
    return True


def flush(writer: SummaryWriter | None = None) -> None:
    """Flush the events of a writer, by default the current one."""
    for one in [writer] if writer else _writers[-1:]:
        if one is not None:
            one.flush()


@contextmanager
def record_if(condition: TensorLike) -> Iterator[None]:
    """Write the summaries inside only if a condition holds."""
    _writers.append(_writers[-1] if bool(condition) else None)
    try:
        yield
    finally:
        _writers.pop()


def should_record_summaries() -> bool:
    """Return whether summaries are written."""
    return _writers[-1] is not None


def _set_step(step: Any) -> None:
    """Set the default step of summaries."""
    _step[:] = [int(step)]


experimental: SimpleNamespace = SimpleNamespace(
    set_step=_set_step, get_step=lambda: _step[0] if _step else None
)


def scalar(
    name: str, data: TensorLike, step: Any = None, description: str | None = None
) -> bool:
    """Write a number; return whether there is a writer."""
    refuse("summary.scalar", description=(description, None))
    return _write("scalar", name, np.asarray(data), step)


def histogram(
    name: str,
    data: TensorLike,
    step: Any = None,
    buckets: Any = None,
    description: str | None = None,
) -> bool:
    """Write a histogram of numbers; return whether there is a writer."""
    refuse(
        "summary.histogram", buckets=(buckets, None), description=(description, None)
    )
    return _write("histogram", name, np.asarray(data), step)


def text(
    name: str, data: TensorLike, step: Any = None, description: str | None = None
) -> bool:
    """Write a text; return whether there is a writer."""
    refuse("summary.text", description=(description, None))
    if isinstance(data, StringTensor):
        data = data.numpy()
    data = data.decode() if isinstance(data, bytes) else str(data)
    return _write("text", name, data, step)


def image(
    name: str,
    data: TensorLike,
    step: Any = None,
    max_outputs: int = 3,
    description: str | None = None,
) -> bool:
    """Write the first images of a batch, of floats in [0, 1] or of uint8."""
    refuse("summary.image", description=(description, None))
    pixels = np.asarray(data)
    if pixels.dtype == np.uint8:
        pixels = pixels / 255.0
    has_numbers = min(len(pixels), max_outputs) > 1
    has_writer = False
    for i, picture in enumerate(pixels[:max_outputs]):
        has_writer = _write(
            "image", f"{name}/{i}" if has_numbers else name, picture, step
        )
    return has_writer
