"""Trusted files: checks whether another user could have written them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MOST_PARTS = 4096  # maximum number of path components, with resolved links
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def is_private(status: os.stat_result) -> bool:
    """Return whether no other user can write the file, such as machine code."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & _OTHERS


def can_be_replaced(folder: Path) -> bool:
    """Return whether another user could replace the folder at this path.

    A parent folder can belong to the user's primary group, if the group has no other
    member: many systems create all folders of a user in this way.

    Args:
        folder: an absolute path. The folder and its parent must be private.
    """
    return replaceable_by_others(folder, trusts_own_group=True) is not None


def replaceable_by_others(path: Path, trusts_own_group: bool = False) -> Path | None:
    """Return a path that another user could replace to redirect this one.

    Args:
        path: an absolute path. The folders of all links on the path are also checked.
        trusts_own_group: whether the user's primary group can write to parent folders.

    Returns:
        As `writable_by_others`.
    """
    if not hasattr(os, "getuid"):
        return None
    place, waiting = Path(path.anchor), [*path.parts[1:]]
    for _ in range(_MOST_PARTS):
        if not waiting:
            break
        name = waiting.pop(0)
        if name == os.pardir:
            place = place.parent
        elif not (place / name).is_symlink():
            place /= name
        else:
            link = place / name
            if link.lstat().st_uid not in (0, os.getuid()):
                return link
            found = writable_folder(place, trusts_own_group)
            if found is not None:
                return found
            target = Path(os.readlink(link))
            if target.is_absolute():
                place, target = Path(target.anchor), target.relative_to(target.anchor)
            waiting = [*target.parts, *waiting]
    return writable_by_others(place, trusts_own_group)


def writable_folder(folder: Path, trusts_own_group: bool) -> Path | None:
    """Return the first of this folder and its parents that another user can write."""
    for place in (folder, *folder.parents):
        status = place.lstat()
        is_open = status.st_mode & _OTHERS and not status.st_mode & stat.S_ISVTX
        is_open = is_open and not (trusts_own_group and _is_for_own_group(status))
        if is_open or status.st_uid not in (0, os.getuid()):
            return place
    return None


def _is_for_own_group(status: os.stat_result) -> bool:
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


def writable_by_others(path: Path, trusts_own_group: bool = False) -> Path | None:
    """Return the file or folder on a path that another user could replace.

    Args:
        path: an absolute path without links.
        trusts_own_group: as for `replaceable_by_others`.

    Returns:
        The file or folder, or None. The administrator is trusted. A sticky folder such
        as /tmp, which all users can write, can contain trusted folders, but no trusted
        file.
    """
    if not hasattr(os, "getuid"):
        return None
    for place in (path, *path.parents):
        status = place.lstat()
        is_shared = place not in (path, path.parent) and (
            status.st_mode & stat.S_ISVTX
            or (trusts_own_group and _is_for_own_group(status))
        )
        if status.st_mode & _OTHERS and not is_shared:
            return place
        if status.st_uid not in (0, os.getuid()):
            return place
    return None
