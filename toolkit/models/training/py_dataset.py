"""PyDataset: batches by index, prefetched by threads or processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from toolkit.errors import ArgumentError
from toolkit.models.training.batch_processes import BatchProcesses

if TYPE_CHECKING:
    from concurrent.futures import Future


class PyDataset:
    """Base class of data sets that return full batches by index.

    A subclass defines `__getitem__(index)`, which returns x, (x, y) or (x, y,
    sample_weight), and `__len__` or `num_batches`; it can define `on_epoch_begin` and
    `on_epoch_end`.

    Args:
        workers: the number of threads or processes that prefetch batches; 1 prepares
            them on demand.
        use_multiprocessing: whether workers are processes: the data set must then be
            picklable. They run the main script up to `if __name__ == "__main__"`, and
            their output goes to standard error.
        max_queue_size: the maximum number of prefetched batches.

    Example:
        >>> import numpy as np
        >>> from toolkit.utils import PyDataset
        >>> class Squares(PyDataset):
        ...     def __len__(self):
        ...         return 2
        ...     def __getitem__(self, index):
        ...         return np.full((3, 1), index**2)
        >>> [int(batch[0, 0]) for batch in Squares(workers=2).fetch(range(2))]
        [0, 1]
    """

    workers: int = 1
    use_multiprocessing: bool = False
    max_queue_size: int = 10

    def __init__(
        self,
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
    ) -> None:
        if max_queue_size < 1:
            raise ArgumentError(
                f"PyDataset: max_queue_size must be >= 1; received {max_queue_size}"
            )
        self.workers = workers
        self.use_multiprocessing = use_multiprocessing
        self.max_queue_size = max_queue_size

    def __getitem__(self, index: int) -> Any:
        """Return the batch with this index; a subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    @property
    def num_batches(self) -> int | None:
        """Return the number of batches; None: infinite."""
        return len(self) if hasattr(self, "__len__") else None

    def on_epoch_begin(self) -> None:
        """Called before each epoch, also if it continues a pass."""

    def on_epoch_end(self) -> None:
        """Called after each epoch, also if `steps_per_epoch` ends it."""

    def fetch(self, indices: Iterable[int]) -> Iterator[Any]:
        """Return the batches with these indices, in order, prefetched by workers.

        Args:
            indices: the indices of the batches.
        """
        if self.workers <= 1 and not self.use_multiprocessing:
            for index in indices:
                yield self[int(index)]
            return
        waiting: deque[Future[Any]] = deque()
        with self._submitting() as submit:
            try:
                for index in indices:
                    waiting.append(submit(int(index)))
                    if len(waiting) >= self.max_queue_size:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    @contextmanager
    def _submitting(self) -> Iterator[Callable[[int], Future[Any]]]:
        """Yield a function that submits a batch to a worker."""
        # Import late: it loads pipes, queues and logging, which would slow down every
        # start.
        from concurrent.futures import ThreadPoolExecutor

        with ExitStack() as stack:
            item: Callable[[int], Any] = self.__getitem__
            if self.use_multiprocessing:
                item = stack.enter_context(BatchProcesses(self)).item
            workers = stack.enter_context(ThreadPoolExecutor(max(1, self.workers)))
            yield lambda index: workers.submit(item, index)


Sequence = PyDataset  # its name before Keras 3


def count_batches(batches: Any) -> int | None:
    """Return the number of batches of an epoch; None if it is unknown or infinite."""
    if hasattr(batches, "num_batches"):
        count = batches.num_batches
        return None if count is None else int(count)
    try:
        return len(batches)
    except TypeError:  # it has no length, or an unknown one
        return None
