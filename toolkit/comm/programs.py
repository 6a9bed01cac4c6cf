"""Check that the programs of all ranks match."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from toolkit.comm.group import Group, exchange
from toolkit.errors import ProgramMismatchError


def compare_programs(
    group: Group, lines: Sequence[str], label: str = "program"
) -> None:
    """Raise an error if the program descriptions of the ranks differ.

    Each rank exchanges one hash. The lines are exchanged only if hashes differ.

    Args:
        group: the group; all its ranks call this.
        lines: the lines that must be equal on all ranks, for example the sequence of
            collectives.
        label: the name of the program in the error.

    Raises:
        ProgramMismatchError: on every rank, with the first line that differs.

    Example:
        >>> from toolkit.comm import compare_programs, local
        >>> local.run(2, lambda group: compare_programs(group, ["all_reduce loss"]))
        [None, None]
    """
    text = "\n".join(lines).encode()
    local_hash = np.frombuffer(hashlib.sha256(text).digest(), np.uint8)
    hashes = np.empty((group.size, local_hash.size), np.uint8)
    group.all_gather(local_hash, hashes)
    if (hashes == local_hash).all():
        return
    # If any hash differs, all ranks detect it, so all ranks reach this exchange.
    all_lines = exchange(group, list(lines))
    rows = enumerate(zip_longest(*all_lines), 1)
    number, row = next((n, row) for n, row in rows if len(set(row)) > 1)
    ranks: dict[str | None, list[int]] = {}
    for rank, line in enumerate(row):
        ranks.setdefault(line, []).append(rank)
    description = "; ".join(
        f"{_name_ranks(members)}: {'ends before it' if line is None else repr(line)}"
        for line, members in ranks.items()
    )
    raise ProgramMismatchError(
        f"the {label} differs between ranks, first in line {number}: {description}"
    )


def _name_ranks(members: Sequence[int]) -> str:
    """Return the name of one or several ranks."""
    plural = "s" if len(members) > 1 else ""
    return f"rank{plural} {', '.join(map(str, members))}"
