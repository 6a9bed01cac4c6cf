"""Where everything is: weights in their file, and what a workspace holds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from toolkit import dtypes
from toolkit.backends.base import ALIGNMENT, aligned
from toolkit.backends.library import (
    LibrarySource,
    LibraryTensor,
    LibraryWeight,
    StoredWeight,
)
from toolkit.definitions.records import record

# The first words of a workspace: see library.ll.
HEADER_WORDS = 48
ERROR_WORD = 10


def stored_weights(weights: Sequence[LibraryWeight]) -> list[StoredWeight]:
    """Weights one behind the other; all but small odd ones begin a cache line."""

    def order(weight: LibraryWeight) -> tuple[bool, int]:
        return weight.array.nbytes % ALIGNMENT != 0, -weight.array.itemsize

    found, offset = [], 0
    for weight in sorted(weights, key=order):
        found.append(StoredWeight(weight, offset, weight.array.nbytes))
        offset += weight.array.nbytes
    return found


def raw(array: np.ndarray) -> memoryview:
    """The bytes of an array, row by row."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def is_batched(tensor: LibraryTensor) -> bool:
    """Whether the batch is its first axis."""
    return tensor.shape[:1] == (-1,)


def row_bytes(tensor: LibraryTensor) -> int:
    """Of a row of a batch; 0 where there is no batch."""
    if not is_batched(tensor):
        return 0
    return math.prod(tensor.shape[1:]) * dtypes.itemsize(tensor.dtype)


@record
class State:
    """A weight that runs change: its two places, of the value and of the next one."""

    weight: int
    nbytes: int
    offset: int
    next_offset: int


class Layout:
    """The offsets of what a workspace holds.

    Attributes:
        only_whole: whether each run is one of a program's batch.
        places: how many operands have one: inputs, outputs, and both values of states.
        padded: of the rows of each input and output, for a batch that is too small.
        states: those that runs change.
        zeros: where constants are that are nothing but zeros, of so many bytes.
    """

    def __init__(self, source: LibrarySource, in_place: bool, zeros: int) -> None:
        operands = [*source.inputs, *source.outputs]
        numbers = [i for i, w in enumerate(source.weights) if w.is_state]
        self.only_whole = (
            source.takes_whole_batches
            or bool(numbers)
            or not all(map(is_batched, operands))
        )
        self.places = len(operands) + 2 * len(numbers)
        self._end = aligned(8 * (HEADER_WORDS + 2 * self.places))
        self.states = [
            self._state(number, source.weights[number], in_place) for number in numbers
        ]
        smallest = min(program.batch for program in source.programs)
        pads = smallest > 1 and not self.only_whole
        self.padded = [
            self.take(smallest * row_bytes(x)) if pads else 0 for x in operands
        ]
        self.state_places = {
            number: len(operands) + 2 * k for k, number in enumerate(numbers)
        }
        self.zeros = self.take(zeros), zeros

    def _state(self, number: int, weight: LibraryWeight, in_place: bool) -> State:
        nbytes = weight.array.nbytes
        offset = self.take(nbytes)
        return State(number, nbytes, offset, offset if in_place else self.take(nbytes))

    def take(self, nbytes: int) -> int:
        """Reserve memory; where it begins."""
        start = self._end
        self._end += aligned(nbytes)
        return start

    def rewind(self, end: int) -> None:
        """Reserve what is behind anew: of several uses there is one at a time."""
        self._end = end

    @property
    def end(self) -> int:
        """Where what is reserved ends."""
        return self._end
