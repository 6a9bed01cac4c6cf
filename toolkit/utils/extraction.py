"""Folders of unpacked archives: replaced atomically, and only if toolkit unpacked them.

Next to such a folder is a list of the unpacked files. A folder with any other file, or
with a file that changed since, is not modified.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolkit.errors import DatasetError
from toolkit.files.sets import raise_error
from toolkit.files.staging import (
    Stage,
    is_folder,
    move_with_retries,
    remove_links,
    replace_file,
)
from toolkit.utils.archives import extract_archive

Files = dict[str, list[int]]  # path -> recorded metadata of a file


def check_is_unpacked(folder: Path) -> None:
    """Raise if a folder exists and contains anything that was not unpacked there."""
    if not os.path.lexists(folder):
        return
    if not is_folder(folder):
        raise DatasetError(f"get_file: {folder} exists already and is not a folder")
    files = _list_files(folder)
    unrecorded_files = [
        _unrecorded_files(files, record) for record in [{}, *_read_records(folder)]
    ]
    if all(unrecorded_files):
        raise DatasetError(
            f"get_file: {folder} exists already and contains changed or foreign files, "
            f"such as {min(unrecorded_files, key=len)[0]!r}. Move the folder away, or "
            "pass another fname"
        )


def unpack(archive: Path, folder: Path, formats: Sequence[str]) -> None:
    """Replace the content of a folder by an archive; an error leaves it unchanged."""
    with Stage(folder.parent, folder.name) as stage:
        extract_archive(archive, stage.files, formats)
        check_is_unpacked(folder)
        new_files = _list_files(stage.files)
        # A kill between the two steps must not make an own folder look foreign.
        _write_records(folder, [*_read_records(folder), new_files])
        _replace_folder(stage, folder)
        _write_records(folder, [new_files])


def _replace_folder(stage: Stage, folder: Path) -> None:
    backup = stage.folder / "older"
    has_folder = os.path.lexists(folder)
    if has_folder:
        move_with_retries(os.rename, folder, backup)
    try:
        move_with_retries(os.rename, stage.files, folder)
    except OSError:
        if has_folder:
            move_with_retries(os.rename, backup, folder)
        raise


def _unrecorded_files(files: Files, record: Files) -> list[str]:
    """Return the files that are not in the record."""
    return sorted(
        name for name, metadata in files.items() if record.get(name) != metadata
    )


def _list_files(folder: Path) -> Files:
    """Return all non-folders in a folder, with size and modification time."""
    files: Files = {}
    for parent, folders, names in os.walk(folder, onerror=raise_error):
        links = remove_links(parent, folders)
        for path in (Path(parent, name) for name in (*names, *links)):
            status = path.lstat()
            name = path.relative_to(folder).as_posix()
            files[name] = [status.st_mode, status.st_size, status.st_mtime_ns]
    return files


def _records_path(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.unpacked.lock")


def _read_records(folder: Path) -> list[Files]:
    """Return the record of unpacked files; during a swap, also the old files."""
    try:
        entries: Any = json.loads(_records_path(folder).read_text("utf-8"))
        return [dict(files) for files in entries]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def _write_records(folder: Path, files: list[Files]) -> None:
    text = json.dumps(files)
    replace_file(_records_path(folder), lambda new: new.write_text(text, "utf-8"))
