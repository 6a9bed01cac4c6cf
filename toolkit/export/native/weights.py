"""Weights of a native library: embedded, or in a separate file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from toolkit.backends.library import MAX_EMBEDDED_BYTES, Library
from toolkit.console.messages import format_size
from toolkit.errors import ArgumentError, ModelFileError, UnsupportedError
from toolkit.reading.safetensors import open_safetensors, write_safetensors

DEFAULT_EMBED_LIMIT = 64 * 2**20

_MARK = "toolkit.native.sha256"  # file metadata key: the hash of the values

WeightsLocation = Literal["embed", "file"]


def embed_rule(label: str, location: WeightsLocation | None) -> Callable[[int], bool]:
    """Return a function that decides whether to embed weights of a number of bytes."""
    if location not in (None, "embed", "file"):
        raise ArgumentError(
            f"{label}: weights: expected 'embed', 'file' or None; received {location!r}"
        )

    def embeds(nbytes: int) -> bool:
        if location == "embed" and nbytes > MAX_EMBEDDED_BYTES:
            raise UnsupportedError(
                f"{label}: {format_size(nbytes)} of weights exceed the limit of an "
                f"object file, {format_size(MAX_EMBEDDED_BYTES)}; use weights='file' "
                "to write a separate file"
            )
        if not nbytes:
            return True
        return (
            nbytes <= DEFAULT_EMBED_LIMIT if location is None else location == "embed"
        )

    return embeds


def write_weights(path: Path, library: Library) -> None:
    """Write the weights as a new file; the values are the argument of `init`."""
    arrays = {entry.weight.name: entry.weight.array for entry in library.weights}
    metadata = {_MARK: library.weights_sha256.hex()}
    write_safetensors(path, arrays, metadata, sort=False)


def is_weights_file(path: Path) -> bool:
    """Return whether `write_weights` wrote a file."""
    try:
        with open_safetensors(path) as content:
            return _MARK in content.metadata
    except ModelFileError:
        return False
