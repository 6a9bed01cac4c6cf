"""Groups of ranks with collectives on bytes, and reductions in a fixed order."""

from toolkit.comm.flight_recorder import named
from toolkit.comm.group import Group, exchange, exchange_number
from toolkit.comm.jobs import is_elastic, recover, world
from toolkit.comm.leaves import Leaves
from toolkit.comm.ordered import all_reduce, reduce_scatter
from toolkit.comm.programs import compare_programs
from toolkit.errors import RankLostError

__all__ = [
    "Group",
    "Leaves",
    "RankLostError",
    "all_reduce",
    "compare_programs",
    "exchange",
    "exchange_number",
    "is_elastic",
    "named",
    "recover",
    "reduce_scatter",
    "world",
]
