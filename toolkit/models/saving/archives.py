"""`.keras` files: ZIP archives of the config, the weights and layers' asset files.

The name and size of every member are checked before the first read, and reads stop at
the declared size.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.buffer_pool import release_spare_memory
from toolkit.core.initial_values import defer_initial_values
from toolkit.errors import ModelFileError, UnwritableFileError
from toolkit.files.sets import list_files
from toolkit.files.staging import is_listed, replace_file
from toolkit.models.saving.h5_files import write_groups
from toolkit.models.saving.json_config import config_text, model_of, parsed
from toolkit.models.saving.keras_2 import (
    load_optimizer_state,
    major_version,
    split_state,
    take_summaries,
)
from toolkit.models.saving.state import load_state, variables_by_group
from toolkit.models.saving.state_paths import parts_of
from toolkit.optimizers.state import build_optimizer
from toolkit.reading.budget import spend
from toolkit.reading.file_errors import check_present, convert_errors
from toolkit.reading.hdf5 import (
    Dataset,
    check_datasets,
    contents_checksum,
    format_checksum,
    open_datasets,
)
from toolkit.reading.zips import Members, open_members
from toolkit.release import VERSION

if TYPE_CHECKING:
    from toolkit.models.model import Model

WEIGHTS, CONFIG, METADATA, ASSETS = (
    *("model.weights.h5", "config.json", "metadata.json"),
    "assets",
)
# The version of Keras whose formats are written.
KERAS_VERSION = "3.15.1"
_MAX_RATIO = 200  # maximum ratio of a member's size to its compressed size


# --- writing --------------------------------------------------------------------------


def save_archive(model: Any, path: Path, include_optimizer: bool = True) -> None:
    """Write a whole model to a `.keras` file, atomically."""
    replace_file(
        path, lambda temporary: _write_archive(model, temporary, include_optimizer)
    )


def _write_archive(model: Model, path: Path, include_optimizer: bool) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".keras-") as folder:
        write_members(model, Path(folder), include_optimizer)
        with zipfile.ZipFile(path, "x") as archive:
            for name in (METADATA, CONFIG, WEIGHTS):
                archive.write(Path(folder, name), name)
            for name in list_files(Path(folder)):
                if name.startswith(f"{ASSETS}/"):
                    archive.write(Path(folder, name), name)


def write_members(model: Any, folder: Path, include_optimizer: bool) -> None:
    """Write the files of a model into an empty folder; the metadata list them."""
    Path(folder, CONFIG).write_text(config_text(model), "utf-8")
    optimizer = getattr(model, "optimizer", None)
    skip = [] if include_optimizer or optimizer is None else [optimizer]
    write_groups(Path(folder, WEIGHTS), variables_by_group(model, skip))
    for where, layer in parts_of(model).items():
        if hasattr(layer, "save_assets"):
            folder_of_layer = Path(folder, ASSETS, where)
            folder_of_layer.mkdir(parents=True, exist_ok=True)
            _check_distinct(folder_of_layer, where)
            layer.save_assets(str(folder_of_layer))
    metadata = {
        "keras_version": KERAS_VERSION,  # of the format
        "toolkit_version": VERSION,
        "date_saved": datetime.now().strftime("%Y-%m-%d@%H:%M:%S"),
        "files": dict(_listed(folder)),
    }
    Path(folder, METADATA).write_text(json.dumps(metadata), "utf-8")


def _check_distinct(folder_of_layer: Path, where: str) -> None:
    """Raise if the file system treats the folders of two sublayers as equal."""
    for path in (folder_of_layer, *folder_of_layer.parents[: where.count("/")]):
        if not is_listed(path):
            raise UnwritableFileError(
                f"the assets of {where!r}: the file system maps {path.name!r} to the "
                "folder of another name, for example one with different case; rename "
                "one of the layers"
            )


def _listed(folder: Path) -> Iterator[tuple[str, str]]:
    """Return the files of a model except the metadata, with their checksums."""
    for name in list_files(folder):
        if name == WEIGHTS:
            # Each of its arrays has a checksum that reads compare, so that the file
            # needs no second full read.
            with open_datasets(folder / name) as datasets:
                yield name, contents_checksum(datasets)
        elif name != METADATA:
            yield name, format_checksum(Path(folder, name).read_bytes())


# --- reading --------------------------------------------------------------------------


def load_archive(path: Path, custom_objects: Any, compile: bool) -> Any:
    """Load the model in a `.keras` file."""
    with _open(path) as members:
        text = members.read(CONFIG)
        _check_listed(members)
        with _weights(members) as datasets:
            version = written_by(
                members.read(METADATA) if METADATA in members.sizes() else None
            )
            model = loaded(text, datasets, custom_objects, compile, path, version)
        with tempfile.TemporaryDirectory(prefix="keras-") as folder:
            members.extract(ASSETS, Path(folder))
            load_assets(model, Path(folder, ASSETS))
    return model


def read_text(path: Path) -> bytes:
    """Return the bytes of a config, which must be a plain file."""
    check_present(path)
    spend(path.stat().st_size, path.name)
    return path.read_bytes()


def loaded(
    text: bytes,
    datasets: dict[str, Dataset],
    custom_objects: Any,
    compile: bool,
    path: Path,
    version: Any,
) -> Any:
    """Build a model from a config, with the weights of a file of Keras `version`."""
    check_datasets(datasets)
    with defer_initial_values():
        model = model_of(text, custom_objects, compile, str(path), version)
        if major_version(version) == 2:
            datasets, state = split_state(datasets)
            datasets = take_summaries(model, datasets)
            if getattr(model, "optimizer", None) is not None and state:
                load_optimizer_state(model, state, is_by_slot=False)
        build_optimizer(model)
        load_state(model, datasets, str(path))
    release_spare_memory()
    return model


def written_by(metadata: bytes | None) -> Any:
    """Return the version of Keras in the metadata, or None."""
    parsed_metadata = None if metadata is None else parsed(metadata, METADATA)
    return (
        parsed_metadata.get("keras_version")
        if isinstance(parsed_metadata, dict)
        else None
    )


def load_assets(model: Any, folder: Path) -> None:
    """Let each layer load its asset files."""
    for where, layer in parts_of(model).items():
        if hasattr(layer, "load_assets"):
            folder_of_layer = Path(folder, where)
            with convert_errors(f"{str(folder)!r}: the assets of {layer.name!r}"):
                layer.load_assets(
                    str(folder_of_layer) if folder_of_layer.is_dir() else None
                )


def archived_json(path: Path) -> tuple[Any, Any]:
    """Return the config and the metadata of a `.keras` file, as plain values."""
    with _open(path) as members:
        config, metadata = members.read(CONFIG), members.read(METADATA)
        return parsed(config, CONFIG), parsed(metadata, METADATA)


@contextmanager
def weights_in_archive(path: Path) -> Iterator[dict[str, Dataset]]:
    """Return the datasets of the weights in a `.keras` file, without reading them."""
    with _open(path) as members, _weights(members) as datasets:
        yield datasets


def listed_files(metadata: bytes) -> dict[str, str] | None:
    """Return the files in the metadata, with their checksums, or None."""
    parsed_metadata = parsed(metadata, METADATA)
    files = parsed_metadata.get("files") if isinstance(parsed_metadata, dict) else None
    if files is not None and not isinstance(files, dict):
        raise ModelFileError(
            f"{METADATA}: expected a list of files; received {files!r}"
        )
    return files


def _check_listed(members: Members) -> None:
    """Raise if a file in the metadata's list is missing."""
    sizes = members.sizes()
    listed = listed_files(members.read(METADATA)) if METADATA in sizes else None
    for name in listed or ():
        if name not in sizes:
            raise ModelFileError(f"member {name!r} is missing")


def _open(path: Path) -> AbstractContextManager[Members]:
    return open_members(path, ".keras", _MAX_RATIO)


@contextmanager
def _weights(members: Members) -> Iterator[dict[str, Dataset]]:
    """Return the datasets of the weights, without reading them."""
    if WEIGHTS not in members.sizes() and "model.weights.npz" in members.sizes():
        raise ModelFileError(
            "its weights are in a .npz file, which needs pickle; save the model "
            "again with weights_format='h5'"
        )
    with open_datasets(members.open(WEIGHTS), WEIGHTS) as datasets:
        yield datasets
