"""The job that this process belongs to."""

from __future__ import annotations

from toolkit.comm.group import Group
from toolkit.comm.local import single

_world: list[Group] = []


def world() -> Group:
    """The group of all ranks of this job: one rank without a launcher.

    Example:
        >>> from toolkit import comm
        >>> comm.world().size
        1
    """
    if not _world:
        _world.append(single())
    return _world[0]
