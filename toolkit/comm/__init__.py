"""Groups of ranks that exchange bytes, and sums over them in a fixed order."""

from toolkit.comm.group import Group, exchange
from toolkit.comm.jobs import world
from toolkit.comm.ordered import Leaves, all_reduce, reduce_scatter

__all__ = ["Group", "Leaves", "all_reduce", "exchange", "reduce_scatter", "world"]
