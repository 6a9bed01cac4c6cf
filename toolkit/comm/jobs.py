"""Distributed job of this process: world group, failure handling and exit."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from toolkit import settings
from toolkit.comm.engine import ElasticGroup, Engine
from toolkit.comm.flight_recorder import steps
from toolkit.comm.group import Group
from toolkit.comm.launchers import (
    launcher_variable,
    rank_command,
    remember_launcher,
    uses_mpi,
)
from toolkit.comm.local import single
from toolkit.comm.mpi import MpiEngine
from toolkit.comm.replacements import PendingReplacements, SimulatedGroup
from toolkit.comm.slow_link import with_simulated_link
from toolkit.comm.sockets.engine import SocketEngine
from toolkit.comm.watchdog import STALLED_EXIT_CODE, Watchdog, WatchedGroup
from toolkit.errors import LaunchError, RankLostError

# Seconds until a stalled collective ends the job.
TIMEOUT = 600.0
# Seconds until a process ends itself if its launcher does not end it.
ABORT_TIMEOUT = 5.0
_engine: list[Engine] = []
_world: list[Group] = []
# Barrier groups of ranks that have finished their script.
_exit_barriers: list[Group] = []
# Script of each rank, with its arguments.
script: list[str] = []


def world() -> Group:
    """Return the group of all ranks of the job: one rank without a launcher.

    Raises:
        LaunchError: a launcher started several processes that cannot connect, or MPI is
            missing.

    Example:
        >>> from toolkit import comm
        >>> comm.world().size
        1
    """
    if not _world:
        _world.append(_join())
    return _world[0]


def has_joined() -> bool:
    """Return whether this process has joined a job, or is a job of one rank."""
    return bool(_world)


def recover() -> Group:
    """Remove lost ranks from the job; all remaining ranks call this.

    Call it after a `RankLostError`. Ranks and threads that are in a collective of the
    job, or of groups derived from it, leave it with that error. Those groups become
    unusable.

    Returns:
        The new result of `world`; ranks keep their order.

    Raises:
        LaunchError: the job is not elastic.

    Example:
        >>> from toolkit import comm
        >>> try:
        ...     comm.world().barrier()
        ... except comm.RankLostError:
        ...     world = comm.recover()
    """
    old_group = world()
    if not (is_elastic() and isinstance(old_group, WatchedGroup)):
        raise LaunchError(
            "recover: expected a job started by `toolkit run --elastic`; received a "
            "job that ends if any rank ends"
        )
    _revoke(old_group)
    old_group.watchdog.close()
    _world[:] = [_watch_group(_elastic(old_group).shrink())]
    return _world[0]


def _elastic(group: Group) -> ElasticGroup:
    """Return the group of an elastic job without its watchdog."""
    assert isinstance(group, WatchedGroup)
    elastic_group: Any = group.wrapped_group  # an elastic job has no other groups
    return cast(ElasticGroup, elastic_group)


def _revoke(group: WatchedGroup) -> None:
    """Abort the calls of all threads and ranks in a group and its derived groups."""
    elastic_group = _elastic(group)
    if not elastic_group.is_closed:
        elastic_group.revoke()
    for derived_group in group.derived_groups:
        _revoke(derived_group)


def start_replacements(count: int) -> PendingReplacements:
    """Start replacements for lost ranks; all remaining ranks call this.

    The ranks continue and do not wait for the processes."""
    path, *arguments = script
    command = rank_command([os.path.abspath(path), *arguments])
    # Without the interpreter.
    bridge = _engine[0].spawn(_elastic(world()), command[1:], count)
    return PendingReplacements(bridge)


def admit(merged_group: ElasticGroup) -> Group:
    """Create a group with new processes; all its ranks call this."""
    old_watchdog = watchdog()
    if old_watchdog is not None:
        old_watchdog.close()
    _world[:] = [_watch_group(merged_group)]
    return _world[0]


def is_replacement() -> bool:
    """Return whether this process is a replacement that has not joined the job."""
    return isinstance(world(), SimulatedGroup)


def join() -> Group:
    """Wait until the job admits this process; exit if it does not."""
    simulated_group = world()
    assert isinstance(simulated_group, SimulatedGroup)
    _world[:] = [_watch_group(simulated_group.join())]
    return _world[0]


def _refuse_to_join() -> None:
    """Exit if this process should join a job and does not."""
    if _world and isinstance(_world[0], SimulatedGroup):
        _world[0].decline_and_exit()


def can_replace() -> bool:
    """Return whether lost ranks are replaced."""
    return settings.environment("REPLACE") == "1" and bool(script)


def is_elastic() -> bool:
    """Return whether the job continues after the loss of a rank."""
    return settings.environment("ELASTIC") == "1"


def _join() -> Group:
    launcher = launcher_variable()
    if launcher is None or (launcher[1] == 1 and not is_elastic()):
        return single()
    remember_launcher(*launcher)
    engine: Engine = (MpiEngine if uses_mpi() else SocketEngine)(*launcher)
    _engine[:] = [engine]
    bridge = engine.bridge_to_job()
    if bridge is not None:
        return SimulatedGroup(bridge)
    group = engine.world_group()
    slowed_group = with_simulated_link(group)
    if slowed_group is not group and is_elastic():
        raise LaunchError("TOOLKIT_LINK: an elastic job cannot have a slow link")
    return _watch_group(slowed_group)


def _watch_group(group: Group) -> Group:
    _exit_barriers[:] = [group.duplicate()]
    job_watchdog = Watchdog(group, timeout(), abort_job, kill_stopped=is_elastic())
    return job_watchdog.watch(group, "world", range(group.size))


def timeout() -> float:
    """Return the timeout of a collective in seconds: TOOLKIT_TIMEOUT, or 600."""
    return settings.timeout(TIMEOUT)


def watchdog() -> Watchdog | None:
    """Return the watchdog of this job, or None for one rank."""
    group = _world[0] if _world else None
    return group.watchdog if isinstance(group, WatchedGroup) else None


@contextmanager
def shared_operation(name: str) -> Iterator[None]:
    """Return a context of an operation of all ranks; its errors are sent to them.

    If it raises an error in one rank, the others raise an error that names the rank and
    has the same class, if that is an error of this package. They raise it at the call
    for which they wait. After that, the ranks cannot communicate any more. An error
    that all ranks raise at the same point has no effect on the others.

    Args:
        name: the name of the operation, for errors.
    """
    job_watchdog = watchdog()
    if job_watchdog is None:
        yield
        return
    with steps(), job_watchdog.failures.telling(name):
        yield


def abort_job(reason: str, code: int = STALLED_EXIT_CODE) -> NoReturn:
    """Abort all ranks of the job now.

    Args:
        reason: the message to print.
        code: the exit code of the job.
    """
    _write_outcome("stalled", code)
    print(f"toolkit: the job ends: {reason}", file=sys.stderr, flush=True)
    _abort(code)


def report_failure(print_reason: Callable[[], object], code: int) -> None:
    """Abort all ranks because this one failed; return if it is the only rank.

    If several ranks fail, for example by an error in their script, only one reports it.

    Args:
        print_reason: a function that prints the reason.
        code: the exit code of the job.
    """
    job_watchdog = watchdog()
    if job_watchdog is None:
        print_reason()
        _refuse_to_join()
        return
    if not job_watchdog.claim("failure"):
        time.sleep(3)  # the reporting rank ends this one
    print_reason()
    sys.stderr.flush()
    _write_outcome("failed", code)
    time.sleep(0.2)  # time for other ranks that request to report
    abort_job(f"rank {job_watchdog.rank} has failed, exit code {code}", code)


def finish_job() -> None:
    """Wait for the other ranks before a clean exit."""
    job_watchdog = watchdog()
    _refuse_to_join()
    if job_watchdog is None:
        return
    job_watchdog.has_ended = True
    job_watchdog.failures.forget()  # the barrier has its own group
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        # Other ranks can take long, and this rank must answer them meanwhile.
        _exit_barriers[-1].barrier()
    except RankLostError:
        pass  # a lost rank cannot reach the barrier
    if job_watchdog.rank == 0:
        _write_outcome("ended" if is_elastic() else "finished", 0)
    _engine[0].finish()
    if is_elastic():
        os._exit(0)  # MPI_Finalize can wait for lost ranks


def _write_outcome(outcome: str, code: int) -> None:
    """Write the outcome of the job to a file, if exit codes do not report it.

    The file has the outcome, the exit code and the PIDs of all processes on this
    machine, for a launcher that must end them itself. The first outcome stays.
    """
    path = settings.environment("OUTCOME")
    if path is None or (outcome != "ended" and os.path.exists(path)):
        return
    job_watchdog = watchdog()
    pids = {os.getpid()}
    if job_watchdog is not None:
        addresses = job_watchdog.channel.addresses
        machine = addresses[job_watchdog.rank].machine
        pids |= {address.pid for address in addresses if address.machine == machine}
    words = [outcome, code, *sorted(pids)]
    temporary = Path(f"{path}-{os.getpid()}")
    temporary.write_text(" ".join(map(str, words)), "utf-8")
    temporary.replace(path)


def _abort(code: int) -> NoReturn:
    # MPI_Abort waits for its launcher, which can hang, as can the output pipe. This
    # timer needs neither Python nor the engine.
    with suppress(AttributeError, RuntimeError, ValueError):
        faulthandler.dump_traceback_later(ABORT_TIMEOUT, exit=True)
    sys.stdout.flush()
    sys.stderr.flush()
    if _engine:
        _engine[0].abort(code)
    os._exit(code)
