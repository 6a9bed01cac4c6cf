"""Convert a model, or its weights, to another format, selected by the file ending.

  .keras, .h5      a whole model: from a whole model, or from weights with --model
  .weights.h5      weights for load_weights
  .weights.json    the same in several files, each of at most --shard-size gigabytes
  .npz             weights as NumPy arrays by path
  .safetensors     weights by layer name, without the optimizer's state
  .safetensors.index.json    the same in several files

Weights in the older .h5 format and in .safetensors also need --model, because they
depend on the order and names of layers. A conversion between .safetensors files needs
no model.

Examples:
  $ toolkit convert model.h5 model.keras
  $ toolkit convert model.keras model.npz
  $ toolkit convert model.npz model.weights.h5
  $ toolkit convert model.keras model.safetensors
  $ toolkit convert other.weights.h5 new.keras --model model.keras
"""

from __future__ import annotations

import argparse
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.cli.contents import (
    SAFETENSORS,
    Content,
    StoredArray,
    load_whole_model,
    open_content,
)
from toolkit.cli.custom_objects import (
    add_import_option,
    custom_objects_scope,
    load_model_with_hint,
)
from toolkit.cli.overwriting import add_force_option, check_overwrite
from toolkit.console.messages import format_size
from toolkit.errors import ArgumentError, ModelFileError
from toolkit.files.staging import replace_file
from toolkit.models.saving.h5_files import write_groups
from toolkit.models.saving.safetensors_lists import LIST
from toolkit.models.saving.safetensors_saving import safetensors_of, save_safetensors
from toolkit.models.saving.shards import save_shards
from toolkit.models.saving.state import Groups, groups_of, load_state
from toolkit.models.saving.whole_models import save_model

MODEL_ENDINGS = (".keras", ".h5")
WEIGHT_ENDINGS = (".weights.h5", ".weights.json", ".npz", ".safetensors", LIST)
_VARIABLE_PATH = re.compile(r"(?:(.*)/)?vars/[^/]+")  # of an array, as Keras names them


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the two files, and the model of the weights."""
    parser.add_argument("source", type=Path, metavar="FROM", help="the file to read")
    parser.add_argument(
        "target", type=_parse_target, metavar="TO", help="the file to write"
    )
    parser.add_argument(
        "--model",
        type=Path,
        metavar="FILE",
        help="the file of the model that the weights belong to",
    )
    parser.add_argument(
        "--shard-size",
        type=_parse_gigabytes,
        default=5.0,
        metavar="GB",
        help="5, or so many",
    )
    add_force_option(parser, "TO")
    add_import_option(parser)


def _parse_target(text: str) -> Path:
    if not text.endswith((*MODEL_ENDINGS, *WEIGHT_ENDINGS)):
        endings = ", ".join((*MODEL_ENDINGS, *WEIGHT_ENDINGS))
        raise argparse.ArgumentTypeError(
            f"expected a name that ends in one of {endings}; received {text!r}"
        )
    return Path(text)


def _parse_gigabytes(text: str) -> float:
    try:
        if float(text) > 0:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected a number > 0; received {text!r}")


def run(options: argparse.Namespace) -> int:
    """Convert the file and print the new path and size; return 1 on failure."""
    source, target = options.source, options.target
    check_overwrite(options, target)
    is_weights = target.name.endswith(WEIGHT_ENDINGS)
    with custom_objects_scope(options), open_content(source) as content:
        kind = content.kind
        if target.name.endswith((".safetensors", LIST)):
            result = _read_arrays(content, options)
        elif is_weights:
            result = _read_groups(content, options)
        else:
            result = _load_model(content, options)
    if result is None:
        raise ArgumentError(
            f"{str(source)!r} holds {kind}; pass --model FILE with the model of "
            "these weights"
        )
    if not result:
        raise ArgumentError(
            f"expected a model or weights; {str(source)!r} holds {kind}, without "
            "weights"
        )
    if is_weights:
        _write_weights(target, result, options.shard_size)
    else:
        save_model(result, target)
    print(f"{target}: {format_size(target.stat().st_size)}")
    return 0


def _load_model(content: Content, options: argparse.Namespace) -> Any:
    """Return the model of a file, or --model with the file's weights, or None."""
    if options.model is None:
        return load_model_with_hint(content.load, True) if content.load else None
    model = load_whole_model(options.model)
    if content.fill is not None:
        content.fill(model)
    else:
        arrays: Any = content.arrays  # compatible with load_state
        load_state(model, arrays, str(options.source), may_hold_more=True)
    return model


def _read_groups(content: Content, options: argparse.Namespace) -> Groups | None:
    """Return the groups of a weights file, or None if only a model has them."""
    if content.fill is None and options.model is None:
        return _group_arrays(content.arrays)
    model = _load_model(content, options)
    return model and groups_of(model)


def _read_arrays(content: Content, options: argparse.Namespace) -> Any:
    """Return the arrays of a safetensors file, or None if only a model has them."""
    if content.kind.startswith(SAFETENSORS) and options.model is None:
        return {name: array.read() for name, array in content.arrays.items()}
    model = _load_model(content, options)
    return model and safetensors_of(model)


def _group_arrays(arrays: Mapping[str, StoredArray]) -> Groups:
    """Return arrays as groups by path; as in Keras, each owner has a group "vars"."""
    groups: Groups = {}
    for path, array in arrays.items():
        match = _VARIABLE_PATH.fullmatch(path)
        if match is None:
            raise ModelFileError(
                "expected names of weights, such as 'layers/dense/vars/0'; received "
                f"{path!r}"
            )
        group, _, key = path.rpartition("/")
        owner = getattr(array, "owner", None) or (match[1] or "").rpartition("/")[2]
        groups.setdefault(group, (owner, {}))[1][key] = array.read()
    return groups


def _write_weights(target: Path, groups: Any, shard_size: float) -> None:
    if target.name.endswith((".safetensors", LIST)):
        save_safetensors(target, groups, shard_size)
    elif target.suffix == ".json":
        save_shards(target, groups, shard_size)
    elif target.suffix == ".npz":
        arrays = {
            f"{group}/{key}": np.asarray(array)
            for group, (_, members) in groups.items()
            for key, array in members.items()
        }
        save_npz(target, arrays)
    else:
        replace_file(target, lambda temporary: write_groups(temporary, groups))


def save_npz(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Write arrays by name to a `.npz` file atomically.

    Dtypes that NumPy lacks become float32, which represents all their values.
    """

    def write(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "x") as archive:
            for name, array in arrays.items():
                if array.dtype.isbuiltin == 2:  # not a NumPy dtype
                    array = array.astype(np.float32)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)

    replace_file(path, write)
