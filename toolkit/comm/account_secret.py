"""Secrets of an account: its processes on one machine share them without settings."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from toolkit import settings
from toolkit.errors import ArgumentError, CommunicationError
from toolkit.files.private import find_writable_folder

# Minimum number of characters of a secret.
MIN_SECRET_SIZE = 16
_MAX_SIZE = 4096  # bytes to read of a file


def account_secret(file: str, variable: str) -> bytes:
    """Return a secret that all processes of this account have.

    It is the value of an environment variable. If that is not set, it is the content of
    a private file in TOOLKIT_HOME, which the first use creates. Processes of one
    account on one machine, or with one home folder, have the same secret.

    Args:
        file: the name of the file.
        variable: the name of the environment variable, which begins with TOOLKIT_.

    Raises:
        ArgumentError: if the value of the variable is too short for a secret.
        CommunicationError: if the file cannot be created, or other accounts can read or
            change it.
    """
    secret = settings.environment(variable.removeprefix("TOOLKIT_"))
    if secret is not None:
        return _validate(secret.strip(), variable)
    path = Path(os.path.realpath(settings.home())) / file
    try:
        if not path.exists():
            _create(path)
        return _validate(_read(path, variable), str(path))
    except OSError as error:
        raise CommunicationError(
            f"{variable}: cannot create or read the secret in {str(path)!r} ({error}); "
            f"set the variable {variable} for all processes"
        ) from error


def _validate(text: str, source: str) -> bytes:
    if len(text) < MIN_SECRET_SIZE:
        raise ArgumentError(
            f"{source}: expected a secret text of at least {MIN_SECRET_SIZE} "
            f"characters; received {len(text)}"
        )
    return text.encode()


def _create(path: Path) -> None:
    """Write a new secret, unless another process has written one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def _read(path: Path, variable: str) -> str:
    with open(path, "rb") as file:
        if not _is_secret(os.fstat(file.fileno()), path.parent):
            raise CommunicationError(
                f"{variable}: {str(path)!r}: expected a secret that only this account "
                "can read and change. Remove the access of other users (chmod 600), "
                f"also for the parent folders, or set {variable}"
            )
        return file.read(_MAX_SIZE).decode("utf-8", "replace").strip()


def _is_secret(status: os.stat_result, folder: Path) -> bool:
    """Return whether only this account can read or replace the file."""
    if not hasattr(os, "getuid"):
        return True
    is_own = status.st_uid == os.getuid() and not status.st_mode & 0o077
    return is_own and find_writable_folder(folder, trust_primary_group=True) is None
