"""Export a model to programs without Python, in a format selected by the ending.

  .o .a .so .dylib    a native library, with a C header
  .wasm               a WebAssembly module
  .onnx               a graph for ONNX Runtime and other runtimes
  .xml                a graph for OpenVINO, by its converter

Without -o, the output is next to FROM. A native library is for this machine's
processor, unless --target selects one: x86-64-v2, x86-64-v3, x86-64-v4, aarch64, armv7,
riscv64 or wasm32. x86-64 is a library for the first three, which selects one at load
time.

Examples:
  $ toolkit export model.keras
  $ toolkit export model.keras -o digits.so --target x86-64-v3 --batch 1,32 --check
  $ toolkit export model.keras --target wasm32
  $ toolkit export model.keras -o digits.onnx --opset 21
  $ toolkit export model.keras --triton repository --batch 64
  $ toolkit export model.keras --target aarch64 --format object --weights file
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from toolkit.cli import choice_type
from toolkit.cli.contents import load_whole_model
from toolkit.cli.custom_objects import add_import_option, custom_objects_scope
from toolkit.cli.overwriting import add_force_option, check_overwrite
from toolkit.console.messages import format_size
from toolkit.errors import ArgumentError
from toolkit.export.formats import export_model, format_of
from toolkit.export.native.checking import check_native
from toolkit.export.native.names import KINDS, SHARED

_WASM = ".wasm"
# Format -> file endings; the first is the default unless the target has another.
FORMATS = {
    "object": (".o",),
    "static": (".a",),
    "shared": (".so", ".dylib", _WASM),
    "onnx": (".onnx",),
    "openvino": (".xml",),
}
# Options of the command with the same name in the exporter.
_EXPORTER_OPTIONS = (
    *("target", "batch", "sizes", "weights", "threads", "linker", "prefix"),
    *("opset_version", "external_data"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the two files, and the options of the formats."""
    parser.add_argument("source", type=Path, metavar="FROM", help="the file of a model")
    parser.add_argument(
        "-o", dest="output", type=Path, metavar="TO", help="the file to write"
    )
    parser.add_argument(
        "--format",
        type=choice_type(*FORMATS),
        metavar="FORMAT",
        help=f"{', '.join(FORMATS)}; default: the format of TO's ending, or shared",
    )
    parser.add_argument(
        "--triton",
        type=Path,
        metavar="FOLDER",
        help="write the next version of the model as ONNX to this repository of "
        "Triton or OpenVINO Model Server; --batch is the maximum batch size",
    )
    _add_library_options(parser)
    _add_onnx_options(parser)
    parser.add_argument(
        "--check",
        action="store_true",
        help="run the library on random inputs and compare it with the model",
    )
    add_force_option(parser, "TO")
    add_import_option(parser)


def _add_library_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="NAME", help="the target processor")
    parser.add_argument(
        "--batch",
        type=_parse_numbers,
        metavar="N,...",
        help="batch sizes of the library; 1,4,16,64,256",
    )
    parser.add_argument(
        "--size",
        dest="sizes",
        type=_parse_size,
        action="append",
        metavar="NAME=N",
        help="the value of another dynamic extent, such as dim_0_1=64; can occur "
        "several times",
    )
    parser.add_argument(
        "--weights",
        type=choice_type("embed", "file"),
        metavar="WHERE",
        help="embed: in the library; file: in a separate file; default: embed up to "
        "64 MB",
    )
    parser.add_argument(
        "--no-threads",
        dest="threads",
        action="store_const",
        const=False,
        help="create a library without threads",
    )
    parser.add_argument(
        "--linker", metavar="COMMAND", help="the linker command, such as 'clang'"
    )
    parser.add_argument(
        "--prefix", metavar="NAME", help="the prefix of the C functions"
    )


def _add_onnx_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--opset",
        dest="opset_version",
        type=int,
        metavar="N",
        help="the ONNX opset version, 17 to 24; 20",
    )
    parser.add_argument(
        "--external-data",
        action="store_const",
        const=True,
        help="write an ONNX file's weights to TO.data; otherwise above 1.5 GB only",
    )


def _parse_numbers(text: str) -> list[int]:
    try:
        numbers = [int(number) for number in text.split(",")]
        if min(numbers) > 0:
            return numbers
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(
        f"expected integers > 0 with commas between; received {text!r}"
    )


def _parse_size(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not number.isdigit() or int(number) < 1:
        raise argparse.ArgumentTypeError(
            f"expected a name, = and an integer > 0; received {text!r}"
        )
    return name, int(number)


def run(options: argparse.Namespace) -> int:
    """Export the model and print the paths and sizes; return 1 on failure."""
    if options.triton is not None:
        return _export_to_repository(options)
    path = _output_path(options)
    if options.check and KINDS.get(path.suffix) != SHARED:
        raise ArgumentError(
            "--check supports only shared libraries, .so or .dylib; received "
            f"{str(path)!r}"
        )
    weights = [path.with_suffix(".bin")] if path.suffix == ".xml" else []
    check_overwrite(options, path, *weights)
    arguments = {name: getattr(options, name) for name in _EXPORTER_OPTIONS}
    if arguments["sizes"] is not None:
        arguments["sizes"] = dict(arguments["sizes"])
    arguments = {name: value for name, value in arguments.items() if value is not None}
    with custom_objects_scope(options):
        model = load_whole_model(options.source)
        export_model(model, path, verbose=False, **arguments)
        print(f"{path}: {format_size(path.stat().st_size)}")
        if options.check:
            _check_library(model, path, options)
    return 0


def _export_to_repository(options: argparse.Namespace) -> int:
    unsupported = (
        "output",
        "format",
        "target",
        "sizes",
        "weights",
        "threads",
        "linker",
    )
    has_unsupported = any(
        getattr(options, x) is not None for x in (*unsupported, "prefix")
    )
    if has_unsupported or options.check or options.force:
        raise ArgumentError(
            "--triton supports only the options --batch, --opset, --external-data "
            "and --import"
        )
    arguments: dict[str, Any] = {"name": options.source.name.partition(".")[0]}
    if options.batch is not None:
        arguments["max_batch_size"] = max(options.batch)
    for name in ("opset_version", "external_data"):
        if getattr(options, name) is not None:
            arguments[name] = getattr(options, name)
    with custom_objects_scope(options):
        model = load_whole_model(options.source)
        export_model(model, options.triton, "triton", verbose=False, **arguments)
    versions = sorted(
        int(folder.name)
        for folder in (options.triton / arguments["name"]).iterdir()
        if folder.name.isdecimal()
    )
    print(f"{options.triton / arguments['name']}: wrote version {versions[-1]}")
    return 0


def _output_path(options: argparse.Namespace) -> Path:
    """Return the output file, whose ending matches the format."""
    endings = FORMATS[options.format or "shared"]
    if options.output is None:
        is_module = (options.target or "").startswith("wasm") and _WASM in endings
        ending = _WASM if is_module else endings[0]
        return options.source.with_name(options.source.stem + ending)
    if options.format is not None and options.output.suffix not in endings:
        raise ArgumentError(
            f"--format {options.format}: expected a path that ends in "
            f"{' or '.join(endings)}; received {str(options.output)!r}"
        )
    format_of("-o", options.output)
    return options.output


def _check_library(model: Any, path: Path, options: argparse.Namespace) -> None:
    comparison = check_native(model, path, options.prefix)
    rows = ", ".join(map(str, comparison.rows))
    print(
        f"compared with the model for {rows} rows: error at most {comparison.error:.1e}"
    )
