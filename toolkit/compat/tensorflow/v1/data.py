"""`tf.data` of TensorFlow 1: data sets whose elements are tensors of a graph."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from toolkit import tree
from toolkit.compat.tensorflow import data as data2
from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.tensors import GraphOperation, GraphStep
from toolkit.core.keras_tensor import KerasTensor
from toolkit.data.structure import map_leaves
from toolkit.errors import NotBuiltError, ToolkitError


class OutOfRangeError(ToolkitError, StopIteration):
    """A data set has no more elements."""


class Iterator:
    """A position in a data set, separate for each session.

    Args:
        dataset: of `tf.data`.
        starts_itself: whether the first fetch starts at the first element.
    """

    dataset: Any
    starts_itself: bool

    def __init__(self, dataset: Any, starts_itself: bool) -> None:
        self.dataset, self.starts_itself = dataset, starts_itself
        # By session, as long as the session exists.
        self._iterators: Any = WeakKeyDictionary()
        self._initializer: GraphOperation | None = None

    @property
    def initializer(self) -> GraphOperation:
        """Return the operation that resets to the first element.

        Raises:
            NotBuiltError: the iterator starts itself.
        """
        if self.starts_itself:
            raise NotBuiltError("Iterator: a one shot iterator has no initializer")
        if self._initializer is None:
            step = GraphStep(
                lambda run: self._start(run.session), "MakeIterator", compiles=False
            )
            self._initializer = get_default_graph().append(step, (), None)
        return self._initializer

    def get_next(self, name: str | None = None) -> Any:
        """Return symbolic tensors of the next element, which is a new one in each
        run."""

        def symbol(spec: Any) -> KerasTensor:
            return KerasTensor(spec.shape, spec.dtype.name)

        symbols = map_leaves(symbol, self.dataset.element_spec)
        step = GraphStep(lambda run: None, "IteratorGetNext", source=self.next_of)
        get_default_graph().append(step, (), symbols, name=name)
        return symbols

    def _start(self, session: Any) -> None:
        self._iterators[session] = iter(self.dataset.as_numpy_iterator())

    def next_of(self, session: Any) -> list[Any]:
        """Return the values of the next element in a session.

        Raises:
            OutOfRangeError: if there is no further element.
            NotBuiltError: if the initializer has not run.
        """
        if session not in self._iterators:
            if not self.starts_itself:
                raise NotBuiltError(
                    "IteratorGetNext: run the iterator's initializer in this session "
                    "first"
                )
            self._start(session)
        try:
            return tree.flatten(next(self._iterators[session]))
        except StopIteration:
            raise OutOfRangeError("End of sequence") from None


def make_one_shot_iterator(dataset: Any) -> Iterator:
    """Create an iterator for one pass over a data set.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> with tf.Graph().as_default(), tf.Session() as session:
        ...     dataset = tf.data.Dataset.range(4).batch(2)
        ...     batch = tf.data.make_one_shot_iterator(dataset).get_next()
        ...     [session.run(batch * 10).tolist() for _ in range(2)]
        [[0, 10], [20, 30]]
    """
    return Iterator(dataset, True)


def make_initializable_iterator(
    dataset: Any, shared_name: str | None = None
) -> Iterator:
    """Create an iterator that its `initializer` resets to the start.

    Args:
        dataset: of `tf.data`.
        shared_name: has no effect: in TensorFlow, servers share iterators by it; in
            toolkit each session has a separate position.
    """
    return Iterator(dataset, False)


def __getattr__(name: str) -> Any:
    return getattr(data2, name)
