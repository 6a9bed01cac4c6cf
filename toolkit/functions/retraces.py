"""Warning about a function that is traced again and again."""

from __future__ import annotations

from typing import Any, TypeAlias

from toolkit.console.frames import warn
from toolkit.ir import Spec

# A warning follows this number of signatures that differ in more than their leading
# extent.
MAX_RETRACES = 5

Key: TypeAlias = tuple[Any, ...]  # of a trace: the arguments without their data


class Retraces:
    """The signatures of a function's traces, except for their leading extents.

    Args:
        name: the name of the function.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._signatures: set[Any] = set()

    def add(self, key: Key, last: Key | None) -> None:
        """Warn once when signatures accumulate, with the argument that changed last.

        Args:
            key: the structure of the arguments, their specs, their location, and the
                specs of the results of host calls.
            last: the key of the trace that was called last, if there is one.
        """
        structure, leaves, _, results = key
        signature = structure, tuple(map(_drop_leading_extent, (*leaves, *results)))
        if len(self._signatures) == MAX_RETRACES and signature not in self._signatures:
            old = () if last is None else (*last[1], *last[3])
            self._warn(old, leaves, results)
        if len(self._signatures) <= MAX_RETRACES:
            self._signatures.add(signature)

    def _warn(self, old: Key, leaves: Key, results: tuple[Spec, ...]) -> None:
        names = [f"argument {i}" for i in range(len(leaves))]
        names += ["the result of a layer in Python"] * len(results)
        changes = [
            f"{name} from {before!r} to {after!r}"
            for name, before, after in zip(
                names, old, (*leaves, *results), strict=False
            )
            if before != after
        ]
        pad = "pad to fewer shapes"
        if results:
            pad += " (TextVectorization: output_sequence_length)"
        warn(
            f"{self._name} is traced for the {MAX_RETRACES + 1}th time, because its "
            "arguments differ in more than their leading extent: "
            f"{'; '.join(changes) or 'their structure changed'}. Pass tensors instead "
            f"of Python numbers, or {pad}."
        )


def _drop_leading_extent(leaf: object) -> object:
    return Spec((-1, *leaf.shape[1:]), leaf.dtype) if isinstance(leaf, Spec) else leaf
