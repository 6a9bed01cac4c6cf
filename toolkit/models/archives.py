"""`.keras` files: a ZIP of the config, the weights and what layers keep as files.

Every member's name and size is checked before anything is read, and no more is read
than was declared.
"""

from __future__ import annotations

import io
import json
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from toolkit.errors import MissingFileError, ModelFileError, UnwritableFileError
from toolkit.layers.building import limited_weights
from toolkit.models.h5_files import (
    Dataset,
    open_datasets,
    replace_file,
    total_bytes,
    write_groups,
)
from toolkit.models.parts import parts_of
from toolkit.models.state import groups_of, load_state
from toolkit.models.whole_config import config_text, model_of, parsed

WEIGHTS, CONFIG, METADATA, ASSETS = (
    *("model.weights.h5", "config.json", "metadata.json"),
    "assets",
)
# The version of Keras whose formats are written.
KERAS_VERSION = "3.15.1"
_MAX_RATIO = 200  # of a member's size to its size in the archive
_SMALL = 1 << 20  # bytes that are always fine
_MAX_MEMBERS = 10_000
_SUSPICIOUS = (
    *(OSError, EOFError, ValueError, NotImplementedError, RuntimeError),
    zlib.error,
)


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
        with members.weights() as datasets:
            with limited_weights(total_bytes(datasets)):
                model = model_of(text, custom_objects, compile, str(path))
            load_state(model, datasets, str(path))
        with tempfile.TemporaryDirectory(prefix="keras-") as folder:
            members.extract(ASSETS, Path(folder))
            _load_assets(model, Path(folder, ASSETS))
    return model


def load_folder(path: Path, custom_objects: Any, compile: bool) -> Any:
    """The model that a folder with the files of a `.keras` file holds."""
    text = Path(path, CONFIG).read_bytes()
    with open_datasets(Path(path, WEIGHTS)) as datasets:
        with limited_weights(total_bytes(datasets)):
            model = model_of(text, custom_objects, compile, str(path))
        load_state(model, datasets, str(path))
    _load_assets(model, Path(path, ASSETS))
    return model


def _load_assets(model: Any, folder: Path) -> None:
    for where, part in parts_of(model).items():
        if hasattr(part, "load_assets"):
            own = Path(folder, where)
            part.load_assets(str(own) if own.is_dir() else None)


def archived_json(path: Path) -> tuple[Any, Any]:
    """The config and the metadata of a `.keras` file, as plain values."""
    with _open(path) as members:
        config, metadata = members.read(CONFIG), members.read(METADATA)
        return parsed(config, CONFIG), parsed(metadata, METADATA)


@contextmanager
def weights_in_archive(path: Path) -> Iterator[dict[str, Dataset]]:
    """The datasets of the weights in a `.keras` file, not read yet."""
    with _open(path) as members, members.weights() as datasets:
        yield datasets


@contextmanager
def open_members(path: Path, kind: str, max_ratio: int) -> Iterator[Members]:
    """The members of a ZIP, checked; `kind` is what messages say was expected."""
    if not path.is_file():
        raise MissingFileError(f"File not found: there is no file {str(path)!r}")
    try:
        with _zip_file(path) as archive:
            yield Members(archive, max_ratio)
    except zipfile.BadZipFile as error:
        raise ModelFileError(
            f"{str(path)!r}: expected a {kind} file, which is a ZIP; it is damaged or "
            f"something else ({error})"
        ) from error
    except ModelFileError as error:
        error.args = (f"{str(path)!r}: {error}",)
        raise


def _zip_file(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except _SUSPICIOUS as error:
        raise zipfile.BadZipFile(str(error)) from error


def _open(path: Path) -> AbstractContextManager[Members]:
    return open_members(path, ".keras", _MAX_RATIO)


class Members:
    """The members of an archive, once their names and sizes look harmless."""

    def __init__(self, archive: zipfile.ZipFile, max_ratio: int = _MAX_RATIO) -> None:
        self._archive = archive
        self._infos: dict[str, zipfile.ZipInfo] = {}
        infos = archive.infolist()
        if len(infos) > _MAX_MEMBERS:
            raise ModelFileError(f"{len(infos)} members: refused")
        for info in infos:
            if info.filename in self._infos:
                raise ModelFileError(f"{info.filename!r} is there twice: refused")
            _check_member(info, max_ratio)
            self._infos[info.filename] = info

    def sizes(self) -> dict[str, int]:
        """The bytes that each member declares."""
        return {name: info.file_size for name, info in self._infos.items()}

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a member, at most `size`."""
        info = self._infos.get(name)
        if info is None:
            raise ModelFileError(f"there is no member {name!r}")
        try:
            with self._archive.open(info) as file:
                return file.read(size)
        except _SUSPICIOUS as error:
            raise ModelFileError(f"{name!r} is damaged ({error})") from error

    def read(self, name: str) -> bytes:
        """All bytes of a member."""
        info = self._infos.get(name)
        data = self.head(name, info.file_size + 1 if info else 0)
        if info is None or len(data) != info.file_size:
            raise ModelFileError(f"{name!r} has another size than it declares: refused")
        return data

    @contextmanager
    def weights(self) -> Iterator[dict[str, Dataset]]:
        """The datasets of the weights, not read yet."""
        if WEIGHTS not in self._infos and "model.weights.npz" in self._infos:
            raise ModelFileError(
                "its weights are in a .npz file, which only pickle could read; save "
                "the model again with weights_format='h5'"
            )
        with open_datasets(io.BytesIO(self.read(WEIGHTS)), WEIGHTS) as datasets:
            yield datasets

    def extract(self, prefix: str, folder: Path) -> None:
        """Write the members under `prefix` to files in `folder`."""
        for name, info in self._infos.items():
            if name.startswith(f"{prefix}/") and not info.is_dir():
                target = Path(folder, *PurePosixPath(name).parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(self.read(name))


def _check_member(info: zipfile.ZipInfo, max_ratio: int) -> None:
    name = info.filename
    parts = PurePosixPath(name).parts
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    if not parts or ".." in parts or name.startswith("/") or is_link:
        raise ModelFileError(f"{name!r} points out of the archive: refused")
    if "\\" in name or ":" in parts[0] or "\0" in name:
        raise ModelFileError(f"{name!r} is no plain name: refused")
    if info.flag_bits & 1:
        raise ModelFileError(f"{name!r} is encrypted: refused")
    if info.file_size > max(_SMALL, max_ratio * info.compress_size):
        raise ModelFileError(
            f"{name!r} declares {info.file_size} bytes, of which the archive holds "
            f"{info.compress_size}: refused"
        )
