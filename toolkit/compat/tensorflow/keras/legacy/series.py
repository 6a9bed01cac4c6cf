"""`tf.keras.preprocessing.sequence`: windows of time series, and pairs of words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import ArgumentError
from toolkit.type_aliases import Array
from toolkit.utils import PyDataset

__all__ = ["TimeseriesGenerator", "make_sampling_table", "skipgrams"]

_GAMMA = 0.577  # Euler's constant, with the precision of word2vec


class TimeseriesGenerator(PyDataset):
    """Batches of windows of a series, each with the target of the next step.

    A sample is `data[i - length : i : sampling_rate]` with `targets[i]`. New code uses
    `keras.utils.timeseries_dataset_from_array`.

    Args:
        data: (steps, ...), an array or a list.
        targets: (steps, ...).
        length: the span of a window, in steps.
        sampling_rate: the period between the steps of a window.
        stride: the period between the starts of windows.
        start_index: the first step to use.
        end_index: the last step that is a target; None: the last of all.
        shuffle: whether to draw targets at random, by `np.random`, with repeats.
        reverse: whether windows are in reverse order.
        batch_size: windows in a batch.
        **kwargs: of PyDataset: `workers`, `use_multiprocessing`, `max_queue_size`.

    Raises:
        ArgumentError: data and targets differ in length, or no window fits.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> series = np.arange(10)
        >>> windows = tf.keras.preprocessing.sequence.TimeseriesGenerator(
        ...     series, series, length=3, batch_size=4)
        >>> x, y = windows[0]
        >>> x[0].tolist(), y.tolist(), len(windows)
        ([0, 1, 2], [3, 4, 5, 6], 2)
    """

    def __init__(
        self,
        data: Any,
        targets: Any,
        length: int,
        sampling_rate: int = 1,
        stride: int = 1,
        start_index: int = 0,
        end_index: int | None = None,
        shuffle: bool = False,
        reverse: bool = False,
        batch_size: int = 128,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if len(data) != len(targets):
            raise ArgumentError(
                "TimeseriesGenerator: expected data and targets of the same length; "
                f"received {len(data)} and {len(targets)} steps"
            )
        self.data = data
        self.targets = targets
        self.length = length
        self.sampling_rate = sampling_rate
        self.stride = stride
        self.start_index: int = start_index + length
        self.end_index: int = len(data) - 1 if end_index is None else end_index
        self.shuffle = shuffle
        self.reverse = reverse
        self.batch_size = batch_size
        if self.start_index > self.end_index:
            raise ArgumentError(
                f"TimeseriesGenerator: expected start_index + length <= end_index; "
                f"received {self.start_index} > {self.end_index}: no window fits"
            )

    def __len__(self) -> int:
        spanned = self.batch_size * self.stride
        return (self.end_index - self.start_index + spanned) // spanned

    def _rows(self, batch: int) -> Array:
        """Return the steps whose targets are in a batch."""
        if self.shuffle:
            low, high = self.start_index, self.end_index + 1
            return np.random.randint(low, high, size=self.batch_size)
        spanned = self.batch_size * self.stride
        first = self.start_index + spanned * batch
        return np.arange(first, min(first + spanned, self.end_index + 1), self.stride)

    def __getitem__(self, index: int) -> Any:
        """Return a batch: windows (batch, steps, ...) and targets (batch, ...)."""
        rows, length = self._rows(index), self.length
        windows = [self.data[i - length : i : self.sampling_rate] for i in rows]
        samples = np.array(windows)
        targets = np.array([self.targets[i] for i in rows])
        return (samples[:, ::-1] if self.reverse else samples), targets


def make_sampling_table(
    size: int, sampling_factor: float = 1e-5
) -> NDArray[np.float64]:
    """Return the probability to keep each word, by word2vec's subsampling.

    The formula is min(1, sqrt(factor / f)). f = 1 / (r (log(r) + 0.577) + 1/2 - 1 / (12
    r)) approximates the frequency of the word of rank r.

    Args:
        size: the number of words, the most frequent first.
        sampling_factor: a smaller factor removes more words.

    Returns:
        (size,): probabilities.

    Reference:
        https://arxiv.org/abs/1310.4546

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> table = tf.keras.preprocessing.sequence.make_sampling_table(3)
        >>> table.round(5).tolist()
        [0.00315, 0.00315, 0.00548]
    """
    rank = np.arange(size)
    rank[:1] = 1
    inverse = rank * (np.log(rank) + _GAMMA) + 0.5 - 1 / (12.0 * rank)
    scaled = sampling_factor * inverse
    return np.minimum(1.0, scaled / np.sqrt(scaled))


def skipgrams(
    sequence: Sequence[int],
    vocabulary_size: int,
    window_size: int = 4,
    negative_samples: float = 1.0,
    shuffle: bool = True,
    categorical: bool = False,
    sampling_table: Any = None,
    seed: int | None = None,
) -> tuple[list[list[int]], list[Any]]:
    """Return pairs of neighbouring words, and pairs with random words.

    Args:
        sequence: word indices; 0 is not a word.
        vocabulary_size: the largest index plus 1.
        window_size: the maximum distance of neighbouring words.
        negative_samples: the number of random pairs per pair of neighbours.
        shuffle: whether to shuffle the pairs.
        categorical: whether labels are [0, 1] and [1, 0] instead of 1 and 0.
        sampling_table: the probability to keep each word; None keeps all.
        seed: of the shuffle; it seeds Python's generator.

    Returns:
        Pairs, and their labels: 1 for neighbouring words.

    Reference:
        https://arxiv.org/abs/1301.3781

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.keras.preprocessing.sequence.skipgrams(
        ...     [1, 2, 3], 4, window_size=1, negative_samples=0, shuffle=False)
        ([[1, 2], [2, 1], [2, 3], [3, 2]], [1, 1, 1, 1])
    """
    couples = _neighbour_pairs(sequence, window_size, sampling_table)
    count = int(len(couples) * negative_samples)
    labels: list[Any] = [[0, 1] if categorical else 1 for _ in couples]
    labels += [[1, 0] if categorical else 0 for _ in range(count)]
    if negative_samples > 0:
        words = [word for word, _ in couples]
        random.shuffle(words)
        couples += [
            [words[i % len(words)], random.randint(1, vocabulary_size - 1)]
            for i in range(count)
        ]
    if shuffle:
        seed = random.randint(0, 10_000_000) if seed is None else seed
        for values in (couples, labels):
            random.seed(seed)
            random.shuffle(values)
    return couples, labels


def _neighbour_pairs(
    sequence: Sequence[int], window_size: int, table: Any
) -> list[list[int]]:
    """Return the pairs of each kept word and its neighbours."""
    couples = []
    for i, word in enumerate(sequence):
        if not word or (table is not None and table[word] < random.random()):
            continue
        window = range(max(0, i - window_size), min(len(sequence), i + window_size + 1))
        couples += [[word, sequence[j]] for j in window if j != i and sequence[j]]
    return couples
