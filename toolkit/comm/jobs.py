"""The job that this process belongs to."""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from toolkit import settings
from toolkit.comm import mpi
from toolkit.comm.group import Group
from toolkit.comm.local import single
from toolkit.comm.replacements import Coming, Outside
from toolkit.comm.slow import slowed
from toolkit.comm.watch import STALLED, Watchdog, WatchedGroup
from toolkit.errors import LaunchError, RankLostError
from toolkit.processes import python_command

# Seconds after which a job ends in which a collective still waits.
TIMEOUT = 600.0
# Seconds after which a process ends that MPI does not end.
ABORT_PATIENCE = 5.0
_world: list[Group] = []
# Where ranks that have run their script wait for the others.
_at_the_end: list[Group] = []
# The script that each rank runs, and its arguments.
script: list[str] = []


def world() -> Group:
    """The group of all ranks of this job: one rank without a launcher.

    Raises:
        LaunchError: if a launcher has started several processes that do not find each
            other, or there is no MPI.

    Example:
        >>> from toolkit import comm
        >>> comm.world().size
        1
    """
    if not _world:
        _world.append(_join())
    return _world[0]


def recover() -> Group:
    """Leave lost ranks out of the job; all that are left call this.

    Call it after a `RankLostError`; ranks and threads that are still in a collective of
    the job, or of groups made of it, are made to leave it with that error. Those groups
    are of no use any more.

    Returns:
        What `world` returns from now on; ranks keep their order.

    Raises:
        LaunchError: if the job was not started as an elastic one.

    Example:
        >>> from toolkit import comm
        >>> try:
        ...     comm.world().barrier()
        ... except comm.RankLostError:
        ...     world = comm.recover()
    """
    before = world()
    if not (is_elastic() and isinstance(before, WatchedGroup)):
        raise LaunchError(
            "recover: expected a job started by `toolkit run --elastic`; received one "
            "that ends with any of its ranks"
        )
    assert isinstance(before.plain, mpi.MpiGroup)
    _revoke(before)
    before.watchdog.close()
    _world[:] = [_watched(before.plain.shrink())]
    return _world[0]


def _revoke(group: WatchedGroup) -> None:
    """Have all threads of all ranks leave a group, and those that were made of it."""
    assert isinstance(group.plain, mpi.MpiGroup)
    if group.plain.comm:  # MPI's null, once it is closed
        group.plain.revoke()
    for inner in group.inner:
        _revoke(inner)


def replacements(count: int) -> Coming:
    """Start processes for lost ranks; all that are left call this, and go on."""
    group = world()
    assert isinstance(group, WatchedGroup) and isinstance(group.plain, mpi.MpiGroup)
    path, *arguments = script
    command = python_command(
        "toolkit.launch:main",
        *(os.path.abspath(path), *arguments),
        runs_user_code=True,
        has_script=True,
    )
    return Coming(group.plain, count, command[1:])  # without the interpreter


def admit(merged: mpi.MpiGroup) -> Group:
    """Make a group with processes that were let in the job; all its ranks call this."""
    before = watchdog()
    if before is not None:
        before.close()
    _world[:] = [_watched(merged)]
    return _world[0]


def is_outside() -> bool:
    """Whether this process was started for a lost rank, and is not in the job yet."""
    return isinstance(world(), Outside)


def join() -> Group:
    """Wait until the job lets this process in; it ends here if the job does not."""
    outside = world()
    assert isinstance(outside, Outside)
    _world[:] = [_watched(outside.join())]
    return _world[0]


def _refuse() -> None:
    """End this process if it is one that should join a job, and does not."""
    if _world and isinstance(_world[0], Outside):
        _world[0].refuse()


def replaces() -> bool:
    """Whether processes are started for those that are lost."""
    return settings.environment("REPLACE") == "1" and bool(script)


def is_elastic() -> bool:
    """Whether the job goes on when a rank is lost."""
    return settings.environment("ELASTIC") == "1"


def started_by() -> tuple[str, int] | None:
    """The variable that tells how many ranks a launcher has started, and its value.

    None without a launcher. Under `mpirun` in an allocation of Slurm the step of `srun`
    is that of mpirun's daemons, so it counts last.
    """
    for name in ("TOOLKIT_PROCESSES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        if name in os.environ:
            return name, _count(name)
    if "SLURM_PROCID" in os.environ and "SLURM_STEP_NUM_TASKS" in os.environ:
        return "SLURM_STEP_NUM_TASKS", _count("SLURM_STEP_NUM_TASKS")
    return None


def _count(name: str) -> int:
    given = os.environ[name]
    if not (given.isdecimal() and int(given) > 0):
        raise LaunchError(f"{name}: expected a number of processes; received {given!r}")
    return int(given)


def _join() -> Group:
    started = started_by()
    if started is None or (started[1] == 1 and not is_elastic()):
        return single()
    name, expected = started
    bridge = mpi.bridge_to_job()
    if bridge is not None:
        return Outside(bridge)
    group = mpi.world_group()
    if group.size != expected:
        raise LaunchError(
            f"{name} says that {expected} processes were started, but MPI has "
            f"{group.size} in this job: each is on its own. Start them by the mpirun "
            f"of the library that mpi4py uses ({mpi.library_name()}), or by "
            "`srun --mpi=pmix` if that library knows PMIx"
        )
    slow = slowed(group)
    if slow is not group and is_elastic():
        raise LaunchError("TOOLKIT_LINK: an elastic job cannot have a slow link")
    return _watched(slow)


def _watched(group: Group) -> Group:
    _at_the_end[:] = [group.duplicate()]
    watchdog = Watchdog(group, timeout(), end, kill_stopped=is_elastic())
    return watchdog.watch(group, "world", range(group.size))


def timeout() -> float:
    """How long a collective may wait, in seconds: TOOLKIT_TIMEOUT, or 600."""
    return settings.timeout(TIMEOUT)


def watchdog() -> Watchdog | None:
    """The one that watches this job; None for one rank."""
    group = _world[0] if _world else None
    return group.watchdog if isinstance(group, WatchedGroup) else None


def end(reason: str, code: int = STALLED) -> NoReturn:
    """End all ranks of the job, now.

    Args:
        reason: is printed.
        code: the exit code of the job.
    """
    _tell_launcher("stalled", code)
    print(f"toolkit: the job ends: {reason}", file=sys.stderr, flush=True)
    _abort(code)


def fail(show: Callable[[], object], code: int) -> None:
    """End all ranks because this one has failed; it returns if there is only one.

    Where several ranks fail, as by a mistake in their script, one of them tells.

    Args:
        show: prints why.
        code: the exit code of the job.
    """
    dog = watchdog()
    if dog is None:
        show()
        _refuse()
        return
    if not dog.claim("failure"):
        time.sleep(3)  # the one that tells ends this one, too
    show()
    sys.stderr.flush()
    _tell_launcher("failed", code)
    time.sleep(0.2)  # for the ranks that ask whether they should tell
    end(f"rank {dog.rank} has failed, exit code {code}", code)


def leave() -> None:
    """Wait for the other ranks before a clean end."""
    dog = watchdog()
    _refuse()
    if dog is None:
        return
    dog.has_ended = True
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        # Others may take their time, and this rank must be able to answer meanwhile.
        _at_the_end[-1].barrier()
    except RankLostError:
        pass  # who is lost needs no waiting for
    if dog.rank == 0:
        _tell_launcher("ended" if is_elastic() else "finished", 0)
    if is_elastic():
        os._exit(0)  # MPI may wait for lost ranks when it finalizes


def _tell_launcher(outcome: str, code: int) -> None:
    """Write down how the job ends, where exit codes do not tell.

    The file has the outcome, the exit code and the numbers of all processes of this
    machine, for a launcher that has to end them itself. The first outcome stays.
    """
    path = settings.environment("OUTCOME")
    if path is None or (outcome != "ended" and os.path.exists(path)):
        return
    dog = watchdog()
    addresses = [] if dog is None else dog.channel.addresses
    machine = socket.gethostname()
    local = {address.pid for address in addresses if address.machine == machine}
    words = [outcome, code, *sorted({*local, os.getpid()})]
    temporary = Path(f"{path}-{os.getpid()}")
    temporary.write_text(" ".join(map(str, words)), "utf-8")
    temporary.replace(path)


def _abort(code: int) -> NoReturn:
    # MPI waits for its launcher, which may hang, and so may the output that it reads.
    # This timer needs neither Python nor MPI.
    with suppress(AttributeError, RuntimeError, ValueError):
        faulthandler.dump_traceback_later(ABORT_PATIENCE, exit=True)
    sys.stdout.flush()
    sys.stderr.flush()
    mpi.abort(code)
    os._exit(code)
