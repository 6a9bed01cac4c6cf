"""Copies of tensors to the host while an accelerator computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.backends.memory import Memory, memory_of
from toolkit.backends.pending_copy import PendingCopy
from toolkit.core.tensor import Tensor


def fetch(values: Sequence[Any]) -> PendingCopy:
    """Start to copy tensors to the host; an accelerator continues to compute.

    Returns:
        A pending copy, with an array for each tensor and other values unchanged.
    """
    results = list(values)
    by_memory: dict[Memory | None, list[int]] = {}
    for i, x in enumerate(values):
        if isinstance(x, Tensor):
            by_memory.setdefault(memory_of(x._array), []).append(i)
    for i in by_memory.pop(None, ()):
        results[i] = values[i].numpy()
    pending = [
        (numbers, memory.fetch([values[i]._array for i in numbers]))
        for memory, numbers in by_memory.items()
        if memory is not None
    ]

    def get() -> list[Any]:
        for numbers, fetched in pending:
            for i, array in zip(numbers, fetched.get(), strict=True):
                results[i] = array
        pending.clear()
        return results

    return PendingCopy(get, lambda: all(fetched.is_done for _, fetched in pending))
