"""Files that are trusted: whether somebody else could have written them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MOST_PARTS = 4096  # of a path, with all that its links stand for
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def is_private(status: os.stat_result) -> bool:
    """Whether nobody else could have written it: machine code is trusted blindly."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & _OTHERS


def can_be_replaced(folder: Path) -> bool:
    """Whether another user could put another folder at the path of this one.

    A folder above it may belong to the user's own group, if nobody else is in it: many
    systems create all folders of a user so.

    Args:
        folder: absolute. It and the folder that it is in must be private.
    """
    return replaceable_by_others(folder, trusts_own_group=True) is not None


def replaceable_by_others(path: Path, trusts_own_group: bool = False) -> Path | None:
    """What somebody else could replace, so that a path is of another file.

    Args:
        path: absolute. The folders of all links on the way are looked at, too.
        trusts_own_group: whether the user's own group may write to folders further up.

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
    """Return a folder, of this one and those above, where others may replace ours."""
    for place in (folder, *folder.parents):
        status = place.lstat()
        is_open = status.st_mode & _OTHERS and not status.st_mode & stat.S_ISVTX
        is_open = is_open and not (trusts_own_group and _is_for_own_group(status))
        if is_open or status.st_uid not in (0, os.getuid()):
            return place
    return None


def _is_for_own_group(status: os.stat_result) -> bool:
    """Whether a folder is open to a group that has no member but this user."""
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
    """What of a path somebody else could replace: it, or a folder on the way to it.

    Args:
        path: absolute, without links.
        trusts_own_group: as of `replaceable_by_others`.

    Returns:
        The file or folder; None if there is none. The administrator is nobody else. In
        a folder such as /tmp, where all may write, but nobody may replace what is
        another's, there may be folders, and no such file.
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
