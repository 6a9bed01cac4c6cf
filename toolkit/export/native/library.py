"""Models as native libraries: an object file for C, its header and its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.arguments import is_int
from toolkit.core.tensor import backend
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.export.inference import signature_of
from toolkit.export.native.files import LibraryFiles
from toolkit.export.native.names import prefix_of, validate_prefix
from toolkit.export.native.source import WORKSPACE_BYTES, Sizes, make_source
from toolkit.export.native.weights import WeightsLocation, embed_rule

if TYPE_CHECKING:
    from toolkit.models.model import Model


def export(
    model: Model,
    path: str,
    input_signature: Any = None,
    *,
    target: str | None = None,
    batch: int | Sequence[int] | None = None,
    sizes: Mapping[str, int] | None = None,
    weights: WeightsLocation | None = None,
    threads: bool | None = None,
    linker: str | None = None,
    prefix: str | None = None,
    workspace: int = WORKSPACE_BYTES,
) -> None:
    """Write a model as a native library, for `Model.export("digits.so")`.

    It also writes `digits.h`, whose first comment describes the usage. The library
    computes `model(inputs, training=False)`.

    Args:
        model: a built model.
        path: a path that ends in .o, .a, .so, .dylib or .wasm: an object file, a static
            library, a shared library, or a WebAssembly module.
        input_signature: see `Model.export`.
        target: the processor: "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64",
            "armv7", "riscv64" or "wasm32". "x86-64" includes programs for the first
            three, and `init` selects one. None means this machine, with all its
            features.
        batch: the batch sizes with a program. None means 1, 4, 16, 64 and 256, or the
            fixed batch size of the model.
        sizes: a number for each free extent except the batch, such as `{"dim_0_1": 64}`
            for axis 1 of input 0.
        weights: "embed" stores them in the library, "file" in `digits.safetensors`,
            which the caller maps. None embeds up to 64 MB.
        threads: whether the library can run on several threads; None means yes if the
            target has threads.
        linker: the linker command; None searches for one.
        prefix: the prefix of the functions; None uses the file name as a C identifier.
        workspace: the maximum memory of the programs in bytes, if `batch` is None.
            Larger batch sizes are omitted.

    Raises:
        UnsupportedError: the model has an operation without generated code; the message
            has the layer and operation.
        MissingLinkerError: no linker is available. The object file and the header are
            written, and the message has a command to link them.
    """
    label = f"{model.name}.export"
    files = LibraryFiles(label, Path(path), target)
    processors = backend().generator.processors(files.target, threads is not False)
    source = make_source(
        model,
        signature_of(model, input_signature),
        Sizes(_batch_sizes(label, batch), sizes, workspace),
        processors,
        validate_prefix(label, prefix or prefix_of(files.path)),
        embed_rule(label, weights),
    )
    library = backend().generator.build_library(source)
    if threads and not library.has_threads:
        raise UnsupportedError(
            f"{label}: threads: a library for {files.target or library.triple} has "
            "no threads; use the default"
        )
    files.write(library, linker)


def _batch_sizes(label: str, batch: int | Sequence[int] | None) -> list[int] | None:
    if batch is None:
        return None
    sizes: list[Any] = [*batch] if isinstance(batch, (list, tuple)) else [batch]
    are_ints = all(is_int(n) and not isinstance(n, bool) for n in sizes)
    if not sizes or not are_ints or min(sizes) < 1:
        raise ArgumentError(
            f"{label}: batch: expected one or more integers > 0; received {batch!r}"
        )
    return [int(n) for n in sizes]
