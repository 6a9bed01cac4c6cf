"""`.keras` files: a ZIP of the config, the weights and what layers keep as files.

Every member's name and size is checked before anything is read, and no more is read
than was declared.
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from toolkit.errors import MissingFileError, ModelFileError, UnwritableFileError
from toolkit.models.h5_files import replace_file, write_groups
from toolkit.models.parts import parts_of
from toolkit.models.state import groups_of, load_state
from toolkit.models.whole_config import config_text, model_of, parsed
from toolkit.reading.budget import limited_load, spend
from toolkit.reading.clear import clear_errors
from toolkit.reading.hdf5 import Dataset, check_all, open_datasets
from toolkit.reading.zips import Members, open_members

WEIGHTS, CONFIG, METADATA, ASSETS = (
    *("model.weights.h5", "config.json", "metadata.json"),
    "assets",
)
# The version of Keras whose formats are written.
KERAS_VERSION = "3.15.1"
_MAX_RATIO = 200  # of a member's size to its size in the archive


# --- writing --------------------------------------------------------------------------


def save_archive(model: Any, path: Path) -> None:
    """Write a whole model to a `.keras` file in one step."""
    replace_file(path, lambda temporary: _write_archive(model, temporary))


def _write_archive(model: Any, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".keras-") as folder:
        _write_members(model, Path(folder))
        with zipfile.ZipFile(path, "x") as archive:
            for name in (METADATA, CONFIG, WEIGHTS):
                archive.write(Path(folder, name), name)
            for file in sorted(Path(folder, ASSETS).rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(folder).as_posix())


def save_folder(model: Any, path: Path) -> None:
    """Write a whole model to a folder, with the same files as in a `.keras` file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".keras-") as folder:
            made = Path(folder, "model")
            made.mkdir()
            _write_members(model, made)
            if path.exists():
                path.rename(Path(folder, "older"))
            made.rename(path)
    except OSError as error:
        raise UnwritableFileError(f"cannot write {str(path)!r}: {error}") from error


def _write_members(model: Any, folder: Path) -> None:
    saved = datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    metadata = {"keras_version": KERAS_VERSION, "date_saved": saved}
    Path(folder, METADATA).write_text(json.dumps(metadata), "utf-8")
    Path(folder, CONFIG).write_text(config_text(model), "utf-8")
    write_groups(Path(folder, WEIGHTS), groups_of(model))
    for where, part in parts_of(model).items():
        if hasattr(part, "save_assets"):
            own = Path(folder, ASSETS, where)
            own.mkdir(parents=True, exist_ok=True)
            part.save_assets(str(own))


# --- reading --------------------------------------------------------------------------


def load_archive(path: Path, custom_objects: Any, compile: bool) -> Any:
    """The model that a `.keras` file holds."""
    with _open(path) as members:
        text = members.read(CONFIG)
        with _weights(members) as datasets:
            model = _loaded(text, datasets, custom_objects, compile, path)
        with tempfile.TemporaryDirectory(prefix="keras-") as folder:
            members.extract(ASSETS, Path(folder))
            _load_assets(model, Path(folder, ASSETS))
    return model


def load_folder(path: Path, custom_objects: Any, compile: bool) -> Any:
    """The model that a folder with the files of a `.keras` file holds."""
    with limited_load(path):
        _check_links(path)
        text = read_text(Path(path, CONFIG))
        with open_datasets(Path(path, WEIGHTS)) as datasets:
            model = _loaded(text, datasets, custom_objects, compile, path)
        _load_assets(model, Path(path, ASSETS))
    return model


def read_text(path: Path) -> bytes:
    """The bytes of a config, which must be a plain file."""
    if not path.is_file():
        raise MissingFileError(f"there is no file {str(path)!r}")
    spend(path.stat().st_size, path.name)
    return path.read_bytes()


def _check_links(path: Path) -> None:
    """Refuse a folder in which a name stands for a file elsewhere."""
    for inner in path.rglob("*"):
        if inner.is_symlink() or not (inner.is_file() or inner.is_dir()):
            raise ModelFileError(
                f"{str(inner)!r} is a link, maybe to another file, or no file: refused"
            )


def _loaded(
    text: bytes,
    datasets: dict[str, Dataset],
    custom_objects: Any,
    compile: bool,
    path: Path,
) -> Any:
    """The model of a config, with the weights that a file holds."""
    check_all(datasets)
    model = model_of(text, custom_objects, compile, str(path))
    load_state(model, datasets, str(path))
    return model


def _load_assets(model: Any, folder: Path) -> None:
    for where, part in parts_of(model).items():
        if hasattr(part, "load_assets"):
            own = Path(folder, where)
            with clear_errors(f"{str(folder)!r}: the assets of {part.name!r}"):
                part.load_assets(str(own) if own.is_dir() else None)


def archived_json(path: Path) -> tuple[Any, Any]:
    """The config and the metadata of a `.keras` file, as plain values."""
    with _open(path) as members:
        config, metadata = members.read(CONFIG), members.read(METADATA)
        return parsed(config, CONFIG), parsed(metadata, METADATA)


@contextmanager
def weights_in_archive(path: Path) -> Iterator[dict[str, Dataset]]:
    """The datasets of the weights in a `.keras` file, not read yet."""
    with _open(path) as members, _weights(members) as datasets:
        yield datasets


def _open(path: Path) -> AbstractContextManager[Members]:
    return open_members(path, ".keras", _MAX_RATIO)


@contextmanager
def _weights(members: Members) -> Iterator[dict[str, Dataset]]:
    """The datasets of the weights, not read yet."""
    if WEIGHTS not in members.sizes() and "model.weights.npz" in members.sizes():
        raise ModelFileError(
            "its weights are in a .npz file, which only pickle could read; save "
            "the model again with weights_format='h5'"
        )
    with open_datasets(io.BytesIO(members.read(WEIGHTS)), WEIGHTS) as datasets:
        yield datasets
