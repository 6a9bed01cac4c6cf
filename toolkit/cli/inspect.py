"""Show the content of a file: the summary of a model, and the arrays with their shapes.

It supports .keras, .weights.h5, .weights.json, .h5 and .hdf5, .safetensors and
.safetensors.index.json, .npz, .npy and TFRecord files, the folder of a saved model, and
files of Dataset.save and cache, with any name. No code of a file runs, and sizes are
checked before reading.

Examples:
  $ toolkit inspect model.keras
  $ toolkit inspect model.weights.h5 --values
  $ toolkit inspect model.keras --import my_layers.py
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from toolkit.cli.contents import Content, StoredArray, open_content
from toolkit.cli.custom_objects import (
    add_import_option,
    custom_objects_scope,
    load_model_with_hint,
)
from toolkit.console.messages import format_size
from toolkit.errors import ToolkitError, printable
from toolkit.models.summary import summary_text


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the file, and the level of detail."""
    parser.add_argument("file", type=Path, metavar="FILE", help="to look at")
    parser.add_argument(
        "--values",
        action="store_true",
        help="read the arrays and show minimum, mean, maximum and the number of "
        "values that are not finite",
    )
    parser.add_argument(
        "--nested", action="store_true", help="show nested layers in the summary"
    )
    add_import_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print the content; return 1 if the file is corrupt or of an unknown kind."""
    with custom_objects_scope(options), open_content(options.file) as content:
        lines = [
            *_header_lines(options.file, content),
            *_summary_lines(content, options.nested),
            *_table_lines(content, options.values),
        ]
    print(printable("\n".join(lines)))  # names in a file are untrusted
    return 0


def _header_lines(path: Path, content: Content) -> Iterator[str]:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    size = sum(file.stat().st_size for file in files)
    yield f"{path}: {content.kind}, {format_size(size)}"
    for name, value in content.facts.items():
        yield f"  {name}: {value}"


def _summary_lines(content: Content, nested: bool) -> Iterator[str]:
    if content.load is None:
        return
    yield ""
    try:
        yield summary_text(
            load_model_with_hint(content.load, False), expand_nested=nested
        )
    except ToolkitError as error:
        # For example, a custom layer: the arrays can still be shown.
        yield f"No summary, because the model cannot be created: {error}"


def _table_lines(content: Content, values: bool) -> Iterator[str]:
    if not content.arrays:
        return
    titles = ["array", "shape", "dtype", "bytes"]
    titles += ["least", "mean", "greatest", "not finite"] if values else []
    rows = [titles]
    for name in sorted(content.arrays, key=_natural_sort_key):
        array = content.arrays[name]
        array.check()
        row = [name, str(array.shape), array.dtype, f"{array.nbytes:,}"]
        rows.append(row + (_format_statistics(array) if values else []))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield ""
    for row in rows:
        cells = [
            text.ljust(width) if i < 3 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
    total = sum(array.nbytes for array in content.arrays.values())
    yield f"{len(rows) - 1} arrays, {format_size(total)}"


def _natural_sort_key(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts `vars/10` after `vars/9`."""
    return [
        (text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)
    ]


def _format_statistics(stored: StoredArray) -> list[str]:
    array = stored.read()
    if array.dtype.kind in "SUMmV" and array.dtype.isbuiltin != 2:  # not numbers
        return ["", "", "", ""]
    numbers = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    finite = numbers[np.isfinite(numbers)]
    statistics = [
        f"{function(finite):.4g}" if finite.size else ""
        for function in (np.min, np.mean, np.max)
    ]
    return [*statistics, f"{numbers.size - finite.size:,}"]
