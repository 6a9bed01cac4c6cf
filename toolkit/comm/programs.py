"""Whether all ranks are about to run programs that fit."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from toolkit.comm.group import Group, exchange
from toolkit.errors import ProgramMismatchError


def compare_programs(group: Group, lines: Sequence[str], what: str = "program") -> None:
    """Refuse to go on where ranks describe their programs in different lines.

    One hash per rank is exchanged; the lines only if hashes differ.

    Args:
        group: all of whose ranks call this.
        lines: what must be equal on all ranks, such as the collectives in their order.
        what: it is, for the error.

    Raises:
        ProgramMismatchError: on every rank, with the first line that differs.

    Example:
        >>> from toolkit.comm import compare_programs, local
        >>> local.run(2, lambda group: compare_programs(group, ["all_reduce loss"]))
        [None, None]
    """
    text = "\n".join(lines).encode()
    mine = np.frombuffer(hashlib.sha256(text).digest(), np.uint8)
    hashes = np.empty((group.size, mine.size), np.uint8)
    group.all_gather(mine, hashes)
    if (hashes == mine).all():
        return
    # A rank whose hash is that of most others still differs from some: all are here.
    everyone = exchange(group, list(lines))
    rows = enumerate(zip_longest(*everyone), 1)
    number, row = next((n, row) for n, row in rows if len(set(row)) > 1)
    ranks: dict[str | None, list[int]] = {}
    for rank, line in enumerate(row):
        ranks.setdefault(line, []).append(rank)
    told = "; ".join(
        f"{_ranks(members)}: {'ends before it' if line is None else repr(line)}"
        for line, members in ranks.items()
    )
    raise ProgramMismatchError(
        f"the {what} differs between ranks, first in line {number}: {told}"
    )


def _ranks(members: Sequence[int]) -> str:
    """The name of one or several ranks."""
    plural = "s" if len(members) > 1 else ""
    return f"rank{plural} {', '.join(map(str, members))}"
