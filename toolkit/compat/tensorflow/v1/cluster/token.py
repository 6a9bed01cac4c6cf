"""The token of a cluster: its owner can read and change the Variables of the tasks."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from toolkit import settings
from toolkit.errors import ArgumentError, CommunicationError
from toolkit.files.private import find_writable_folder

FILE = "cluster_token"  # in TOOLKIT_HOME
LEAST = 16  # characters
_MOST = 4096  # maximum bytes to read of the file


def token() -> bytes:
    """Return the token of the clusters of this account.

    It is the value of TOOLKIT_CLUSTER_TOKEN. If that is not set, it is the content of a
    private file in TOOLKIT_HOME, which the first use creates. Processes of one account
    on one machine, or with one home folder, have the same token.

    Raises:
        ArgumentError: if the value of the variable is too short for a secret.
        CommunicationError: if the file cannot be created, or other accounts can read or
            change it.
    """
    secret = settings.environment("CLUSTER_TOKEN")
    if secret is not None:
        return _validate(secret.strip(), "TOOLKIT_CLUSTER_TOKEN")
    path = Path(os.path.realpath(settings.home())) / FILE
    try:
        if not path.exists():
            _create(path)
        return _validate(_read(path), str(path))
    except OSError as error:
        raise CommunicationError(
            f"cluster: cannot create or read the token in {str(path)!r} ({error}); "
            "set the variable TOOLKIT_CLUSTER_TOKEN for all tasks"
        ) from error


def _validate(text: str, source: str) -> bytes:
    if len(text) < LEAST:
        raise ArgumentError(
            f"{source}: expected a secret text of at least {LEAST} characters; "
            f"received {len(text)}"
        )
    return text.encode()


def _create(path: Path) -> None:
    """Write a new token, unless another process has written one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{FILE}-")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def _read(path: Path) -> str:
    with open(path, "rb") as file:
        if not _is_secret(os.fstat(file.fileno()), path.parent):
            raise CommunicationError(
                f"cluster: {str(path)!r}: expected a token that only this account "
                "can read and change. Remove the access of other users (chmod 600), "
                "also for the parent folders, or set TOOLKIT_CLUSTER_TOKEN"
            )
        return file.read(_MOST).decode("utf-8", "replace").strip()


def _is_secret(status: os.stat_result, folder: Path) -> bool:
    """Return whether only this account can read or replace the file."""
    if not hasattr(os, "getuid"):
        return True
    is_own = status.st_uid == os.getuid() and not status.st_mode & 0o077
    return is_own and find_writable_folder(folder, trust_primary_group=True) is None
