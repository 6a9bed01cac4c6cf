"""Trusted files: checks whether another user could have written them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MAX_COMPONENTS = 4096  # maximum number of path components, with resolved links
_SHARED_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_private(status: os.stat_result) -> bool:
    """Return whether no other user can write the file, such as machine code."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & _SHARED_WRITE


def can_be_replaced(folder: Path) -> bool:
    """Return whether another user could replace the folder at this path.

    A parent folder can belong to the user's primary group, if the group has no other
    member: many systems create all folders of a user in this way.

    Args:
        folder: an absolute path. The folder and its parent must be private.
    """
    return find_replaceable_path(folder, trust_primary_group=True) is not None


def find_replaceable_path(path: Path, trust_primary_group: bool = False) -> Path | None:
    """Return a path that another user could replace to redirect this one.

    Args:
        path: an absolute path. The folders of all links on the path are also checked.
        trust_primary_group: whether the user's primary group can write to parent
            folders.

    Returns:
        As `find_writable_path`.
    """
    if not hasattr(os, "getuid"):
        return None
    folder, remaining_parts = Path(path.anchor), [*path.parts[1:]]
    for _ in range(_MAX_COMPONENTS):
        if not remaining_parts:
            break
        name = remaining_parts.pop(0)
        if name == os.pardir:
            folder = folder.parent
        elif not (folder / name).is_symlink():
            folder /= name
        else:
            link = folder / name
            if link.lstat().st_uid not in (0, os.getuid()):
                return link
            writable_path = find_writable_folder(folder, trust_primary_group)
            if writable_path is not None:
                return writable_path
            target = Path(os.readlink(link))
            if target.is_absolute():
                folder, target = Path(target.anchor), target.relative_to(target.anchor)
            remaining_parts = [*target.parts, *remaining_parts]
    return find_writable_path(folder, trust_primary_group)


def find_writable_folder(folder: Path, trust_primary_group: bool) -> Path | None:
    """Return the first of this folder and its parents that another user can write."""
    for ancestor in (folder, *folder.parents):
        status = ancestor.lstat()
        is_writable = (
            status.st_mode & _SHARED_WRITE and not status.st_mode & stat.S_ISVTX
        )
        is_writable = is_writable and not (
            trust_primary_group and _is_private_group(status)
        )
        if is_writable or status.st_uid not in (0, os.getuid()):
            return ancestor
    return None


def _is_private_group(status: os.stat_result) -> bool:
    """Return whether a group with write access has no member except this user."""
    import grp
    import pwd

    user, group = os.getuid(), status.st_gid
    if user == 0 or status.st_mode & stat.S_IWOTH or group != os.getgid():
        return False
    try:
        name, members = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return members.gr_name == name and set(members.gr_mem) <= {name}


def find_writable_path(path: Path, trust_primary_group: bool = False) -> Path | None:
    """Return the file or folder on a path that another user could replace.

    Args:
        path: an absolute path without links.
        trust_primary_group: as for `find_replaceable_path`.

    Returns:
        The file or folder, or None. The administrator is trusted. A sticky folder such
        as /tmp, which all users can write, can contain trusted folders, but no trusted
        file.
    """
    if not hasattr(os, "getuid"):
        return None
    for ancestor in (path, *path.parents):
        status = ancestor.lstat()
        is_shared = ancestor not in (path, path.parent) and (
            status.st_mode & stat.S_ISVTX
            or (trust_primary_group and _is_private_group(status))
        )
        if status.st_mode & _SHARED_WRITE and not is_shared:
            return ancestor
        if status.st_uid not in (0, os.getuid()):
            return ancestor
    return None
