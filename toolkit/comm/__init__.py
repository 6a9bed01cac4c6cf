"""Groups of ranks with collectives on bytes, and reductions in a fixed order."""

from typing import TYPE_CHECKING

from toolkit.definitions.namespaces import lazy_namespace

if TYPE_CHECKING:
    from toolkit.comm.flight_recorder import named
    from toolkit.comm.group import Group, exchange, exchange_number
    from toolkit.comm.jobs import is_elastic, recover, shared_operation, world
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
    "shared_operation",
    "world",
]

# Most processes belong to no job, and need no connections.
__getattr__, __dir__ = lazy_namespace(
    __name__,
    {
        ".flight_recorder": ["named"],
        ".group": ["Group", "exchange", "exchange_number"],
        ".jobs": ["is_elastic", "recover", "shared_operation", "world"],
        ".leaves": ["Leaves"],
        ".ordered": ["all_reduce", "reduce_scatter"],
        ".programs": ["compare_programs"],
        "toolkit.errors": ["RankLostError"],
    },
)
