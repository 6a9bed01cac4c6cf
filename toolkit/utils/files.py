"""Downloads: fetched once, verified before use, moved to the cache atomically."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener, url2pathname

from toolkit import settings
from toolkit.console.messages import print_message
from toolkit.errors import (
    ArgumentError,
    DamagedFileError,
    DatasetError,
    MissingDataError,
    unknown_choice,
)
from toolkit.files.locks import lock
from toolkit.files.staging import Stage, remove_stale_stages
from toolkit.reading.file_errors import check_regular_file
from toolkit.utils.archives import FORMATS
from toolkit.utils.extraction import check_is_unpacked, unpack

_CHUNK_SIZE = 1 << 18  # bytes
_TIMEOUT = 30.0  # seconds without data
_HASH_LENGTHS = {"md5": 32, "sha256": 64}
_SCHEMES = ("file", "http", "https")


def get_file(
    fname: str | os.PathLike[str] | None = None,
    origin: str | None = None,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: str | Iterable[str] | None = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    force_download: bool = False,
) -> str:
    """Download a file unless the cache has it, and return its path.

    The file is checked against `file_hash` before it is moved into the cache
    atomically. So a file in the cache is complete, and processes that request the same
    file at the same time download it once. Old files stay until a new file is available
    and unpacked. A folder with files that were not unpacked there is never replaced.

    With a hash, a file that Keras has downloaded to `~/.keras` (or `KERAS_HOME`) is not
    downloaded again. An archive from there is unpacked into the cache. Nothing is
    written to the folder of Keras.

    Args:
        fname: The file's name in the cache; None uses the last part of `origin`. With
            `extract`, a name without an extension is the name of the folder.
        origin: The URL: https, http or file.
        untar: Deprecated form of `extract=True, archive_format="tar"`.
        md5_hash: Deprecated form of `file_hash` with an MD5.
        file_hash: The expected hash, in hexadecimal digits.
        cache_subdir: Folder inside the cache; an absolute path is used as it is.
        hash_algorithm: "sha256", "md5", or "auto", which depends on the hash's length.
        extract: Unpack the archive and return the folder. Only files and folders are
            unpacked; an archive with links or paths outside the folder is rejected.
        archive_format: "tar", "zip", a list of them, or "auto" for both.
        cache_dir: The cache; None is `toolkit.config.home()`. With another cache, the
            folder of Keras is not read.
        force_download: Download even if the cache has the file.

    Returns:
        The path of the file, or with `extract` of the folder.

    Raises:
        DatasetError: the file cannot be fetched, has another hash, or is an archive
            that cannot be unpacked; the message contains the path for a manual
            download.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from toolkit.utils import get_file
        >>> folder = Path(tempfile.mkdtemp())
        >>> size = (folder / "words.txt").write_text("a b c")
        >>> origin = (folder / "words.txt").as_uri()
        >>> path = get_file(origin=origin, cache_dir=folder / "cache")
        >>> Path(path).read_text()
        'a b c'
    """
    if not isinstance(origin, str) or urlsplit(origin).scheme not in _SCHEMES:
        raise ArgumentError(
            'get_file: Please specify the "origin" argument, a URL that starts with '
            f"one of {', '.join(_SCHEMES)}; received {origin!r}"
        )
    expected_hash = _expected_hash(file_hash, md5_hash, hash_algorithm)
    formats = _archive_formats(archive_format, untar) if extract or untar else ()
    folder = Path(cache_dir or settings.home()).expanduser() / cache_subdir
    target, unpacked_folder = _cache_paths(folder, fname, origin, bool(formats))
    result_path = unpacked_folder or target
    if force_download or not (
        _is_valid(target, expected_hash) and result_path.exists()
    ):
        name = Path(cache_subdir, target.name)
        can_reuse = not (
            cache_dir or force_download or _is_valid(target, expected_hash)
        )
        keras_file = _find_in_keras_cache(name, expected_hash) if can_reuse else None
        if keras_file is not None and unpacked_folder is None:
            return str(keras_file)
        origin = keras_file.absolute().as_uri() if keras_file is not None else origin
        _fill_cache(
            target, unpacked_folder, origin, expected_hash, formats, force_download
        )
    return str(result_path)


def _find_in_keras_cache(
    name: Path, expected_hash: tuple[str, str] | None
) -> Path | None:
    """Return a file in the cache of Keras if it has the expected hash."""
    folder = settings.keras_home()
    if folder is None or expected_hash is None:
        return None
    try:
        return folder / name if _is_valid(folder / name, expected_hash) else None
    except OSError:  # not readable
        return None


def _expected_hash(
    file_hash: str | None, md5_hash: str | None, algorithm: str
) -> tuple[str, str] | None:
    """Return (algorithm, hash) to check against, or None."""
    if algorithm not in ("auto", *_HASH_LENGTHS):
        raise unknown_choice(
            "get_file: hash_algorithm", algorithm, ("auto", *_HASH_LENGTHS)
        )
    if md5_hash is not None:
        if file_hash is not None:
            raise ArgumentError(
                "get_file: expected file_hash or md5_hash; received both"
            )
        file_hash, algorithm = md5_hash, "md5"
    if file_hash is None:
        return None
    for name, length in _HASH_LENGTHS.items():
        if algorithm in ("auto", name) and len(file_hash) == length:
            return name, file_hash.lower()
    raise ArgumentError(
        "get_file: file_hash must be 64 hexadecimal digits (sha256) or 32 (md5); "
        f"received {file_hash!r} with hash_algorithm={algorithm!r}"
    )


def _archive_formats(
    archive_format: str | Iterable[str] | None, untar: bool
) -> tuple[str, ...]:
    """Return the archive formats to try, in order."""
    if untar:
        return ("tar",)
    if archive_format == "auto":
        return FORMATS
    if isinstance(archive_format, str):
        archive_format = (archive_format,)
    formats = tuple(archive_format or ())
    if not formats:
        raise ArgumentError(
            f"get_file: extract=True needs an archive_format; "
            f"received {archive_format!r}"
        )
    for name in formats:
        if name not in FORMATS:
            raise unknown_choice("get_file: archive_format", name, ("auto", *FORMATS))
    return formats


def _cache_paths(
    folder: Path, fname: str | os.PathLike[str] | None, origin: str, extract: bool
) -> tuple[Path, Path | None]:
    """Return the path of the download and, for an archive, its folder."""
    name = os.fspath(fname) if fname else Path(urlsplit(origin).path).name
    if not name or name in (".", "..") or Path(name).name != name or "\\" in name:
        raise ArgumentError(
            f"get_file: fname must be a plain file name; received {name!r} for "
            f"origin {origin!r}"
        )
    if not extract:
        return folder / name, None
    if fname and "." in name:
        return folder / name, folder / f"{name.partition('.')[0]}_extracted"
    return folder / f"{name}_archive", folder / name


def _fill_cache(
    target: Path,
    unpacked_folder: Path | None,
    origin: str,
    expected_hash: tuple[str, str] | None,
    formats: tuple[str, ...],
    force_download: bool,
) -> None:
    """Add `target` and `unpacked` to the cache, safely with concurrent processes."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _hold_lock(target.with_name(f".{target.name}.lock")):
            # Another process may have added the file while this one waited.
            remove_stale_stages(target.parent, target.name)
            if force_download or not _is_valid(target, expected_hash):
                _download_again(target, unpacked_folder, origin, expected_hash, formats)
            elif unpacked_folder is not None and not unpacked_folder.exists():
                unpack(target, unpacked_folder, formats)
    except OSError as error:
        raise DatasetError(
            f"get_file: cannot write to the cache: {error}; set TOOLKIT_HOME to a "
            "writable folder"
        ) from error


def _download_again(
    target: Path,
    unpacked_folder: Path | None,
    origin: str,
    expected_hash: tuple[str, str] | None,
    formats: tuple[str, ...],
) -> None:
    """Download `target` again, then unpack it; on an error, the old files stay.

    A first archive that cannot be unpacked also stays, so that the user can examine it.
    """
    if unpacked_folder is not None:
        check_is_unpacked(unpacked_folder)
        remove_stale_stages(unpacked_folder.parent, unpacked_folder.name)
    with Stage(target.parent, target.name) as stage:
        staged_path = stage.files / target.name
        _download(origin, staged_path, target, expected_hash)
        is_first = not target.exists()
        if is_first:
            stage.move_file(staged_path, target)
        if unpacked_folder is not None:
            unpack(target if is_first else staged_path, unpacked_folder, formats)
        if not is_first:
            stage.move_file(staged_path, target)


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path`."""
    with open(path, "a+b") as file:
        lock(file.fileno())
        yield


def _is_valid(path: Path, expected_hash: tuple[str, str] | None) -> bool:
    """Return whether `path` is a file with the expected hash, if there is one."""
    if not path.is_file():
        return False
    return (
        expected_hash is None or hash_file(path, expected_hash[0]) == expected_hash[1]
    )


def hash_file(path: str | os.PathLike[str], algorithm: str = "sha256") -> str:
    """Return the "sha256" or "md5" of a file, in hexadecimal digits."""
    check_regular_file(path, DatasetError, MissingDataError)
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_SIZE):
            digest.update(chunk)
    return digest.hexdigest()


def _download(
    origin: str, staged_path: Path, target: Path, expected_hash: tuple[str, str] | None
) -> None:
    """Download `origin` to the new file `new` for `target`, and check it."""
    print_message(f"Downloading {origin}", use_stderr=True)
    with open(staged_path, "xb") as file:
        _copy_from_url(origin, file, target, expected_hash)
    if expected_hash is not None:
        received = hash_file(staged_path, expected_hash[0])
        if received != expected_hash[1]:
            raise DamagedFileError(
                "get_file: Incomplete or corrupted file: the "
                f"{expected_hash[0]} of {origin}: expected {expected_hash[1]}; "
                f"received {received}"
            )


def _copy_from_url(
    origin: str, file: IO[bytes], target: Path, expected_hash: tuple[str, str] | None
) -> None:
    """Write the content of `origin` to `file`, with a progress bar on a terminal."""
    from tqdm import tqdm

    received = 0
    disable = None if settings.is_interactive_logging_enabled() else True
    try:
        with _open_url(origin) as response:
            length = response.headers.get("Content-Length")
            total = _parse_content_length(length, origin)
            with tqdm(total=total, unit="B", unit_scale=True, disable=disable) as bar:
                while chunk := response.read(_CHUNK_SIZE):
                    file.write(chunk)
                    received += len(chunk)
                    bar.update(len(chunk))
    except (OSError, HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        raise _fetch_error(origin, target, expected_hash, error) from error
    if total is not None and received != total:
        reason = f"the connection closed after {received} of {total} bytes"
        raise _fetch_error(origin, target, expected_hash, reason)


class _WebRedirects(HTTPRedirectHandler):
    """Handler of redirects to web addresses only: urllib would also follow FTP."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise DatasetError(
                f"get_file: {req.full_url} redirects to {newurl!r}: only http:// and "
                "https:// are allowed"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open_url(origin: str) -> Any:
    """Open an address; a local file must be a plain file."""
    url = urlsplit(origin)
    if url.scheme == "file":
        check_regular_file(url2pathname(url.path), DatasetError, MissingDataError)
    return build_opener(_WebRedirects).open(origin, timeout=_TIMEOUT)


def _parse_content_length(text: str | None, origin: str) -> int | None:
    """Return the number of bytes that a server declares."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise DatasetError(
            f"get_file: {origin}: expected a Content-Length of digits; received "
            f"{text!r:.100}"
        )
    return int(text)


def _fetch_error(
    origin: str, target: Path, expected_hash: tuple[str, str] | None, reason: object
) -> DatasetError:
    """Return the error for a failed download: what to fetch, and the path for it."""
    expected = f" ({expected_hash[0]} {expected_hash[1]})" if expected_hash else ""
    hint = " (the existing file has another hash)" if target.exists() else ""
    return DatasetError(
        f"get_file: could not download {origin}: {reason}. On a machine without a "
        f"network, download the file{expected} on another machine and copy it to "
        f"{target}{hint}"
    )
