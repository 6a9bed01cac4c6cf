"""Models as native libraries: an object file that C calls, its header, its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkit.arguments import is_int
from toolkit.core.tensor import backend
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.export.inference import signature_of
from toolkit.export.native.files import LibraryFiles
from toolkit.export.native.names import checked_prefix, prefix_of
from toolkit.export.native.source import WORKSPACE_BYTES, Sizes, make_source
from toolkit.export.native.weights import WeightsPlace, embedding


def export(
    model: Any,
    path: str,
    input_signature: Any = None,
    *,
    target: str | None = None,
    batch: int | Sequence[int] | None = None,
    sizes: Mapping[str, int] | None = None,
    weights: WeightsPlace | None = None,
    threads: bool | None = None,
    linker: str | None = None,
    prefix: str | None = None,
    workspace: int = WORKSPACE_BYTES,
) -> None:
    """Write a model as a native library: what `Model.export("digits.so")` does.

    Beside `digits.so` it writes `digits.h`, whose first comment says how to call it.
    It computes what `model(inputs, training=False)` does.

    Args:
        model: built.
        path: ends in .o, .a, .so, .dylib or .wasm: an object file, a static library,
            a shared one, a module of WebAssembly.
        input_signature: see `Model.export`.
        target: the processor: "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64",
            "armv7", "riscv64" or "wasm32"; "x86-64": programs for the first three,
            of which `init` chooses; None: that of this machine, with all that it can
            do.
        batch: the numbers of rows that are computed at once; None: 1, 4, 16, 64 and
            256, or what the model's inputs say.
        sizes: a number for each extent beside the batch that the model leaves free,
            such as `{"dim_0_1": 64}`, which is axis 1 of input 0.
        weights: "embed" puts them into the library, "file" into `digits.safetensors`,
            which the caller maps; None: into the library up to 64 MB.
        threads: whether the library can share its work among threads; None: where the
            target has them.
        linker: the command that links; None: one that is found.
        prefix: of the functions; None: the name of the file, as C writes names.
        workspace: bytes that the programs of the sizes may take, if `batch` is None;
            larger sizes are left out.

    Raises:
        UnsupportedError: if the model does what is not generated code; it names layer
            and operation.
        MissingLinkerError: if no linker is found. The object file and the header are
            written; the message says which command links them.
    """
    label = f"{model.name}.export"
    files = LibraryFiles(label, Path(path), target)
    processors = backend().processors(files.target, threads is not False)
    source = make_source(
        model,
        signature_of(model, input_signature),
        Sizes(_batches(label, batch), sizes, workspace),
        processors,
        checked_prefix(label, prefix or prefix_of(files.path)),
        embedding(label, weights),
    )
    library = backend().library(source)
    if threads and not library.has_threads:
        raise UnsupportedError(
            f"{label}: threads: a library for {files.target or library.triple} has "
            "none; leave it to the default"
        )
    files.write(library, linker)


def _batches(label: str, given: int | Sequence[int] | None) -> list[int] | None:
    if given is None:
        return None
    found: list[Any] = [*given] if isinstance(given, (list, tuple)) else [given]
    are_ints = all(is_int(n) and not isinstance(n, bool) for n in found)
    if not found or not are_ints or min(found) < 1:
        raise ArgumentError(
            f"{label}: batch: expected one or more integers > 0; received {given!r}"
        )
    return [int(n) for n in found]
