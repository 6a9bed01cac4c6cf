"""`tf.summary` of TensorFlow 1: summaries of a run, and files for TensorBoard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.compat.tensorflow import arrays
from toolkit.compat.tensorflow.v1.graph import Graph, get_default_graph
from toolkit.compat.tensorflow.v1.session import Summary
from toolkit.compat.tensorflow.v1.variables import GraphKeys
from toolkit.errors import ArgumentError
from toolkit.models.callbacks.events import EventWriter
from toolkit.type_aliases import TensorLike


def _summary(kind: str, name: str, tensor: TensorLike, collections: Any) -> Summary:
    graph = get_default_graph()
    tag = graph.unique_name(name)
    if isinstance(tensor, (bool, int, float, np.ndarray, np.generic)):
        tensor = vars(arrays)["identity"](tensor)
    summary = Summary({(kind, tag): tensor})
    keys = [GraphKeys.SUMMARIES] if collections is None else collections
    graph.add_to_collections(keys, summary)
    return summary


def scalar(name: str, tensor: TensorLike, collections: Any = None) -> Summary:
    """Add a scalar summary.

    Args:
        name: its tag, made unique.
        tensor: of the graph, with one element.
        collections: names of its collections; by default the summaries.
    """
    return _summary("scalar", name, tensor, collections)


def histogram(name: str, values: TensorLike, collections: Any = None) -> Summary:
    """Add a histogram summary of a tensor's elements."""
    return _summary("histogram", name, values, collections)


def merge(inputs: Any, name: str | None = None) -> Summary:
    """Merge several summaries."""
    tensors: dict[Any, Any] = {}
    for summary in inputs:
        tensors |= summary.tensors
    return Summary(tensors)


def merge_all(
    key: Any = GraphKeys.SUMMARIES, scope: str | None = None
) -> Summary | None:
    """Merge all summaries of the default graph; None without any.

    Args:
        key: the collection.
        scope: only None.
    """
    if scope is not None:
        raise ArgumentError("merge_all: scope must be None")
    summaries = get_default_graph().get_collection(key)
    return merge(summaries) if summaries else None


class FileWriter:
    """A writer of fetched summaries to a file for TensorBoard.

    Args:
        logdir: the folder, which is created.
        graph: a graph whose operations are listed in the file, as a text.

    Example:
        >>> import tempfile, toolkit.compat.tensorflow.v1 as tf
        >>> with tf.Graph().as_default(), tf.Session() as session:
        ...     x = tf.placeholder("float32", ())
        ...     note = tf.summary.scalar("x", x)
        ...     writer = tf.summary.FileWriter(tempfile.mkdtemp())
        ...     writer.add_summary(session.run(note, {x: 2.0}), global_step=1)
        ...     writer.close()
    """

    def __init__(
        self, logdir: str | os.PathLike[str], graph: Graph | None = None
    ) -> None:
        self._logdir = os.fspath(logdir)
        self._events = EventWriter(Path(logdir))
        if graph is not None:
            self.add_graph(graph)

    def get_logdir(self) -> str:
        """Return the folder."""
        return self._logdir

    def add_graph(self, graph: Graph) -> None:
        """List the operations of a graph."""
        lines = [f"{op.name}: {op.type}" for op in graph.operations]
        self._events.text("graph", "\n\n".join(lines), 0)

    def add_summary(self, summary: dict[Any, Any], global_step: Any = 0) -> None:
        """Write a fetched summary.

        Args:
            summary: the result of `Session.run` for it.
            global_step: the number of the step.
        """
        for (kind, tag), value in summary.items():
            getattr(self._events, kind)(tag, value, int(global_step or 0))

    def flush(self) -> None:
        """Flush the summaries to the file."""
        self._events.flush()

    def close(self) -> None:
        """Close the file."""
        self._events.close()

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
