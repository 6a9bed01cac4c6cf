"""The memory layout: weights in their file, and the contents of a workspace."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from toolkit import dtypes
from toolkit.backends.library import (
    LibrarySource,
    LibraryTensor,
    LibraryWeight,
    StoredWeight,
)
from toolkit.definitions.records import record
from toolkit.plans.operands import ALIGNMENT, align_up

# The first words of a workspace, see library.ll.
HEADER_WORDS = 48
ERROR_WORD = 10


def stored_weights(weights: Sequence[LibraryWeight]) -> list[StoredWeight]:
    """Assign offsets to weights; all except small odd ones are cache-line aligned."""

    def order(weight: LibraryWeight) -> tuple[bool, int]:
        return weight.array.nbytes % ALIGNMENT != 0, -weight.array.itemsize

    stored, offset = [], 0
    for weight in sorted(weights, key=order):
        stored.append(StoredWeight(weight, offset, weight.array.nbytes))
        offset += weight.array.nbytes
    return stored


def raw(array: np.ndarray) -> memoryview:
    """Return the bytes of an array in row-major order."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def is_batched(tensor: LibraryTensor) -> bool:
    """Return whether the first axis is the batch."""
    return tensor.shape[:1] == (-1,)


def row_bytes(tensor: LibraryTensor) -> int:
    """Return the size of a row of a batch in bytes; 0 without a batch."""
    if not is_batched(tensor):
        return 0
    return math.prod(tensor.shape[1:]) * dtypes.itemsize(tensor.dtype)


@record
class State:
    """A weight that runs update, with memory for its value and its next value."""

    weight: int
    nbytes: int
    offset: int
    next_offset: int


class Layout:
    """The offsets in a workspace.

    Attributes:
        needs_full_batch: whether a run must have exactly the batch of a program.
        slot_count: the number of operands with an address slot: inputs, outputs, and
            both values of states.
        padded_offsets: offsets of padded rows of each input and output, for a smaller
            batch.
        states: the states that runs update.
        zeros: the offset and the size of a block of zeros, for constants.
    """

    def __init__(self, source: LibrarySource, in_place: bool, zeros: int) -> None:
        operands = [*source.inputs, *source.outputs]
        numbers = [i for i, w in enumerate(source.weights) if w.is_state]
        self.needs_full_batch = (
            source.takes_whole_batches
            or bool(numbers)
            or not all(map(is_batched, operands))
        )
        self.slot_count = len(operands) + 2 * len(numbers)
        self._end = align_up(8 * (HEADER_WORDS + 2 * self.slot_count))
        self.states = [
            self._state(number, source.weights[number], in_place) for number in numbers
        ]
        smallest = min(program.batch for program in source.programs)
        pads = smallest > 1 and not self.needs_full_batch
        self.padded_offsets = [
            self.take(smallest * row_bytes(x)) if pads else 0 for x in operands
        ]
        self.state_slots = {
            number: len(operands) + 2 * k for k, number in enumerate(numbers)
        }
        self.zeros = self.take(zeros), zeros

    def _state(self, number: int, weight: LibraryWeight, in_place: bool) -> State:
        nbytes = weight.array.nbytes
        offset = self.take(nbytes)
        return State(number, nbytes, offset, offset if in_place else self.take(nbytes))

    def take(self, nbytes: int) -> int:
        """Reserve memory and return its offset."""
        start = self._end
        self._end += align_up(nbytes)
        return start

    def rewind(self, end: int) -> None:
        """Release memory after an offset: only one processor's layout is in use."""
        self._end = end

    @property
    def end(self) -> int:
        """The end of the reserved memory."""
        return self._end
