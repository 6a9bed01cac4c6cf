"""Models in folders, with the files of a `.keras` file, replaced and read together."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolkit.errors import MissingFileError, ModelFileError, UnwritableFileError
from toolkit.files.sets import FileSet, raise_error
from toolkit.files.staging import describe_write_error, flush, is_link, remove_links
from toolkit.models.saving.archives import (
    ASSETS,
    CONFIG,
    METADATA,
    WEIGHTS,
    listed_files,
    load_assets,
    loaded,
    read_text,
    write_members,
    written_by,
)
from toolkit.reading.budget import load_within_budget
from toolkit.reading.hdf5 import contents_checksum, format_checksum, open_datasets

_NAMES = (METADATA, CONFIG, WEIGHTS)


def save_folder(model: Any, path: Path, include_optimizer: bool = True) -> None:
    """Write a whole model to a folder, atomically.

    Args:
        model: the model.
        path: the folder.
        include_optimizer: whether to write the state of the optimizer, too.

    Raises:
        UnwritableFileError: it cannot be written, or contains foreign files.
    """
    is_new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        flush(path.parent)
    except OSError as error:
        reason = describe_write_error(error, path.parent)
        raise UnwritableFileError(f"cannot write {str(path)!r}: {reason}") from error
    files = _files(path)
    try:
        with files.replace(lambda: _own_files(files.root)) as folder:
            write_members(model, folder, include_optimizer)
    finally:
        if is_new:
            with suppress(OSError):  # a non-empty folder stays
                path.rmdir()


def is_model_folder(path: Path) -> bool:
    """Return whether a path is a folder that contains a model."""
    return path.is_dir() and Path(_files(path).folder(), CONFIG).is_file()


def model_folder(path: Path) -> Path:
    """Return the folder with the files of a model that was saved to a folder."""
    return _files(path).folder()


def load_folder(path: Path, custom_objects: Any, compile: bool) -> Any:
    """Load the model in a folder with the files of a `.keras` file."""
    return _files(path).read(lambda folder: _load(folder, custom_objects, compile))


def _files(path: Path) -> FileSet:
    return FileSet(path, "model", _is_name, METADATA)


def _is_name(name: str) -> bool:
    return name in _NAMES or name.startswith(f"{ASSETS}/")


def _load(path: Path, custom_objects: Any, compile: bool) -> Any:
    with load_within_budget(path):
        _check_links(path)
        text, listed = read_text(Path(path, CONFIG)), _listed(path) or {}
        _check(path, listed, text)
        with open_datasets(Path(path, WEIGHTS)) as datasets:
            if WEIGHTS in listed:
                actual = contents_checksum(datasets)
                _compare(path, WEIGHTS, actual, listed[WEIGHTS])
            metadata = Path(path, METADATA)
            version = written_by(read_text(metadata) if metadata.exists() else None)
            model = loaded(text, datasets, custom_objects, compile, path, version)
        load_assets(model, Path(path, ASSETS))
    return model


def _check_links(path: Path) -> None:
    """Raise if a name in a folder is a link to another location."""
    for name in _contents(path):
        inner = Path(path, name)
        if is_link(inner) or not inner.is_file():
            raise ModelFileError(f"{str(inner)!r} is a link or not a regular file")


def _listed(path: Path) -> dict[str, str] | None:
    """Return the files of a model in its metadata, or None."""
    try:
        return listed_files(read_text(Path(path, METADATA)))
    except MissingFileError:
        return None


def _check(path: Path, listed: dict[str, str], config: bytes) -> None:
    """Raise if the files, except the weights, were not saved together."""
    for name, checksum in listed.items():
        file = Path(path, name)
        if not _is_name(name) or ".." in file.parts or not file.is_file():
            raise ModelFileError(f"{str(path)!r}: the listed file {name!r} is missing")
        if name != WEIGHTS:
            actual = format_checksum(config if name == CONFIG else read_text(file))
            _compare(path, name, actual, checksum)


def _compare(path: Path, name: str, actual: str, listed: str) -> None:
    if actual != listed:
        raise ModelFileError(
            f"{str(path)!r}: {name!r} differs from the file that was saved: it is "
            "corrupt or was changed. To load it nevertheless, remove the list of "
            f"'files' in {METADATA}"
        )


def _own_files(root: Path) -> list[str]:
    """Return the files of a model in a folder; raise for foreign files."""
    actual = list(_contents(root))
    if not actual:
        return []
    try:
        listed = _listed(root)
    except ModelFileError:  # corrupt: only the names can be checked
        listed = None
    if METADATA not in actual or CONFIG not in actual:
        foreign = actual
    elif listed is None:  # the format of Keras and of our earlier versions
        foreign = [name for name in actual if not _is_name(name)]
    else:
        foreign = [name for name in actual if name not in (METADATA, *listed)]
    if foreign:
        raise UnwritableFileError(
            f"cannot write {str(root)!r}: the folder contains files that do not "
            f"belong to a saved model, such as {sorted(foreign)[0]!r}; move them "
            "away, or save to another folder"
        )
    return sorted(listed or ())


def _contents(root: Path) -> list[str]:
    """Return all files in a folder, without remains of an interrupted save."""
    actual = []
    for folder, folders, names in os.walk(root, onerror=raise_error):
        if Path(folder) == root:
            folders[:] = [name for name in folders if not _is_left(name)]
        links = remove_links(folder, folders)
        actual += [Path(folder, name).relative_to(root) for name in (*names, *links)]
    return [path.as_posix() for path in actual]


def _is_left(name: str) -> bool:
    return name.startswith(".model.") and name.endswith((".tmp", ".ready"))
