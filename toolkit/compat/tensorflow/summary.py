"""`tf.summary`: event files for TensorBoard."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.errors import ArgumentError
from toolkit.models.callbacks.events import EventWriter

# Those of the `with` blocks that are open, above the one that is used outside of them.
_writers: list[SummaryWriter | None] = [None]
_step: list[int] = []


class SummaryWriter:
    """Writes events to a folder; those inside of `as_default` go to it."""

    def __init__(self, logdir: Any) -> None:
        self._events = EventWriter(Path(str(logdir)))
        weakref.finalize(self, self._events.close)

    @contextmanager
    def as_default(self, step: int | None = None) -> Iterator[SummaryWriter]:
        """What is written inside goes to this writer, at this step if it is given."""
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
        """What is written from here on, outside of other writers, goes to this one."""
        _writers[0] = self
        if step is not None:
            _step[:] = [int(step)]

    def flush(self) -> None:
        """Let readers see what was written."""
        self._events.flush()

    def close(self) -> None:
        """Finish the file."""
        self._events.close()


def create_file_writer(
    logdir: Any,
    max_queue: int | None = None,
    flush_millis: int | None = None,
    filename_suffix: str | None = None,
    name: Any = None,
) -> SummaryWriter:
    """A writer of a new event file in a folder.

    Args:
        logdir: the folder.
        max_queue, flush_millis: have no effect: events are written at once.
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


def _write(kind: str, tag: str, value: Any, step: Any) -> bool:
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
    """Let readers see what was written, by this writer or the one in use."""
    for one in [writer] if writer else _writers[-1:]:
        if one is not None:
            one.flush()


@contextmanager
def record_if(condition: Any) -> Iterator[None]:
    """Write what is inside only if a condition holds."""
    _writers.append(_writers[-1] if bool(condition) else None)
    try:
        yield
    finally:
        _writers.pop()


def should_record_summaries() -> bool:
    """Whether what is written now is kept."""
    return _writers[-1] is not None


def _set_step(step: Any) -> None:
    """The step of what is written without one."""
    _step[:] = [int(step)]


experimental: SimpleNamespace = SimpleNamespace(
    set_step=_set_step, get_step=lambda: _step[0] if _step else None
)


def scalar(name: str, data: Any, step: Any = None, description: Any = None) -> bool:
    """Write a number; returns whether there was a writer."""
    refuse("summary.scalar", description=(description, None))
    return _write("scalar", name, np.asarray(data), step)


def histogram(
    name: str, data: Any, step: Any = None, buckets: Any = None, description: Any = None
) -> bool:
    """Write how numbers are distributed; returns whether there was a writer."""
    refuse(
        "summary.histogram", buckets=(buckets, None), description=(description, None)
    )
    return _write("histogram", name, np.asarray(data), step)


def text(name: str, data: Any, step: Any = None, description: Any = None) -> bool:
    """Write a text; returns whether there was a writer."""
    refuse("summary.text", description=(description, None))
    if isinstance(data, StringTensor):
        data = data.numpy()
    data = data.decode() if isinstance(data, bytes) else str(data)
    return _write("text", name, data, step)


def image(
    name: str,
    data: Any,
    step: Any = None,
    max_outputs: int = 3,
    description: Any = None,
) -> bool:
    """Write the first images of a batch, of floats in [0, 1] or of uint8."""
    refuse("summary.image", description=(description, None))
    pixels = np.asarray(data)
    if pixels.dtype == np.uint8:
        pixels = pixels / 255.0
    several = min(len(pixels), max_outputs) > 1
    found = False
    for i, picture in enumerate(pixels[:max_outputs]):
        found = _write("image", f"{name}/{i}" if several else name, picture, step)
    return found
