"""Stage that resamples a data set to a target distribution of classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from toolkit.data.dataset import Dataset, transformation
from toolkit.data.errors import name_of, unpack_tuple
from toolkit.data.randomness import CHUNK, generator, key_of, new_seed
from toolkit.data.streams import PassContext, Stream
from toolkit.data.structure import TensorSpec
from toolkit.errors import ArgumentError


@transformation("rejection_resample")
class RejectionResample(Dataset):
    """(class, element) pairs, resampled to a target distribution of classes.

    An element of class c is accepted with a probability proportional to the target
    fraction of c divided by its fraction in the data. All elements of the most limiting
    class are accepted.

    Args:
        class_func: a function from an element to its class, an integer from 0.
        target_dist: the target fraction of each class.
        initial_dist: the fraction of each class in the data. None counts classes during
            the pass, with an initial count of one for each class.
        seed: the random seed, combined with the pass number; None draws one.

    Example:
        >>> from toolkit.data import Dataset
        >>> digits = Dataset.range(1000).map(lambda x: x % 10)
        >>> rest = digits.rejection_resample(
        ...     lambda x: int(x > 0), [0.5, 0.5], [0.1, 0.9], seed=1)
        >>> zeros = [int(kind) for kind, _ in rest].count(0)
        >>> zeros
        100
    """

    def __init__(
        self,
        dataset: Dataset,
        class_func: Callable[..., Any],
        target_dist: Any,
        initial_dist: Any = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(dataset)
        self._class, self._target = class_func, _shares("target_dist", target_dist)
        self._initial = None
        if initial_dist is not None:
            self._initial = _shares("initial_dist", initial_dist)
            if self._initial.shape != self._target.shape:
                raise ArgumentError(
                    "rejection_resample: expected shares of the same classes; received "
                    f"{len(self._target)} and {len(self._initial)}"
                )
        self._seed = new_seed() if seed is None else int(seed)

    def _detail(self) -> str:
        return name_of(self._class)

    def _stream(self, context: PassContext) -> Stream:
        return _ResampledStream(self, context, context.open(self._parents[0]))

    def _spec(self) -> Any:
        return TensorSpec((), "int64"), self._parents[0]._spec()


def _shares(name: str, weights: Any) -> Any:
    shares = np.asarray(weights, np.float64)
    if shares.ndim != 1 or (shares < 0).any() or not shares.sum() > 0:
        raise ArgumentError(
            f"rejection_resample: expected shares >= 0 as {name}; received {weights}"
        )
    return shares / shares.sum()


class _ResampledStream(Stream):
    fields = ("position", "counts")

    def __init__(
        self, dataset: RejectionResample, context: PassContext, parent: Stream
    ) -> None:
        super().__init__(dataset, context, parent)
        self._stage, self._class = dataset, unpack_tuple(dataset._class)
        self._key = key_of(dataset._seed, context.epoch)
        self.position = 0  # index among all elements
        self.counts = [1] * len(dataset._target)  # class counts, with a prior of one

    def elements(self) -> Iterator[Any]:
        chances = (
            None
            if self._stage._initial is None
            else self._acceptance(self._stage._initial)
        )
        draws = np.zeros(0)
        for element in self.parent:
            chunk, offset = divmod(self.position, CHUNK)
            if offset == 0 or not len(draws):
                draws = generator(self._key, chunk).random(CHUNK)
            kind = self._class_of(element)
            self.counts[kind] += 1
            self.position += 1
            acceptance = (
                self._acceptance(np.array(self.counts)) if chances is None else chances
            )
            if draws[offset] < acceptance[kind]:
                yield np.int64(kind), element

    def _class_of(self, element: Any) -> int:
        try:
            kind = int(self._class(element))
            if not 0 <= kind < len(self.counts):
                raise ArgumentError(
                    "rejection_resample: expected classes from 0 to "
                    f"{len(self.counts) - 1}; received {kind}"
                )
        except Exception as error:
            self.annotate_error(error, self.position)
            raise
        return kind

    def _acceptance(self, fractions: Any) -> Any:
        """Return the acceptance probability of each class."""
        target, fractions = self._stage._target, fractions / fractions.sum()
        ratios = np.divide(
            target, fractions, out=np.zeros_like(target), where=fractions > 0
        )
        return ratios / max(ratios.max(), 1e-300)
