"""Weights of a native library: embedded, or in a separate file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from toolkit.backends.library import MOST_EMBEDDED, Library
from toolkit.console.messages import format_size
from toolkit.errors import ArgumentError, ModelFileError, UnsupportedError
from toolkit.reading.safetensors import open_safetensors, write_safetensors

EMBEDDED_BY_DEFAULT = 64 * 2**20

_MARK = "toolkit.native.sha256"  # file metadata key: the hash of the values

WeightsPlace = Literal["embed", "file"]


def embedding(label: str, place: WeightsPlace | None) -> Callable[[int], bool]:
    """Return a function that decides whether to embed weights of a number of bytes."""
    if place not in (None, "embed", "file"):
        raise ArgumentError(
            f"{label}: weights: expected 'embed', 'file' or None; received {place!r}"
        )

    def embeds(nbytes: int) -> bool:
        if place == "embed" and nbytes > MOST_EMBEDDED:
            raise UnsupportedError(
                f"{label}: {format_size(nbytes)} of weights are too much for an object "
                f"file, which may hold {format_size(MOST_EMBEDDED)}; weights='file' "
                "writes them beside it"
            )
        if not nbytes:
            return True
        return nbytes <= EMBEDDED_BY_DEFAULT if place is None else place == "embed"

    return embeds


def write_weights(path: Path, library: Library) -> None:
    """Write the weights as a new file; the values are the argument of `init`."""
    arrays = {stored.weight.name: stored.weight.array for stored in library.weights}
    metadata = {_MARK: library.weights_sha256.hex()}
    write_safetensors(path, arrays, metadata, sort=False)


def is_ours(path: Path) -> bool:
    """Return whether `write_weights` wrote a file."""
    try:
        with open_safetensors(path) as content:
            return _MARK in content.metadata
    except ModelFileError:
        return False
