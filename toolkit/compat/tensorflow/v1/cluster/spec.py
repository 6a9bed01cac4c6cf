"""ClusterSpec: the tasks of each job, and their addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolkit.errors import ArgumentError, ArgumentTypeError, MissingKeyError

_JOB = re.compile(r"[A-Za-z][\w.-]*$")


class Task(NamedTuple):
    """One process of a cluster."""

    job: str
    number: int

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.number}"


class ClusterSpec:
    """The tasks of a cluster by job, with the address of each.

    Args:
        cluster: the addresses, "host:port", of each job's tasks: a list, or a dict by
            task number; or another ClusterSpec.

    Raises:
        ArgumentError: if a name or an address is invalid, or two tasks have one
            address.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> cluster = tf.train.ClusterSpec({"ps": ["a:2222"], "worker": ["b:1", "c:1"]})
        >>> cluster.jobs, cluster.num_tasks("worker"), cluster.task_address("ps", 0)
        (['ps', 'worker'], 2, 'a:2222')
    """

    def __init__(self, cluster: Any) -> None:
        if isinstance(cluster, ClusterSpec):
            cluster = cluster.as_cluster_def()
        if not isinstance(cluster, Mapping):
            raise ArgumentTypeError(
                "ClusterSpec: expected a dict of addresses by job, or a ClusterSpec; "
                f"received {cluster!r}"
            )
        self._tasks: dict[str, dict[int, str]] = {}
        for job, tasks in cluster.items():
            if not isinstance(job, str) or not _JOB.match(job):
                raise ArgumentError(
                    f"ClusterSpec: {job!r} is not a valid name of a job"
                )
            self._tasks[job] = _number_tasks(job, tasks)
        addresses = [self.task_address(*task) for task in self]
        if len(set(addresses)) < len(addresses):
            raise ArgumentError(
                f"ClusterSpec: expected one address for each task; received {cluster}"
            )

    def __iter__(self) -> Iterator[Task]:
        return (Task(job, i) for job, tasks in self._tasks.items() for i in tasks)

    @property
    def jobs(self) -> list[str]:
        """Return the names of the jobs."""
        return list(self._tasks)

    def as_dict(self) -> dict[str, Any]:
        """Return the addresses by job: a list if tasks have the numbers 0, 1, ..."""
        return {
            job: list(tasks.values())
            if list(tasks) == list(range(len(tasks)))
            else tasks
            for job, tasks in self.as_cluster_def().items()
        }

    def as_cluster_def(self) -> dict[str, dict[int, str]]:
        """Return the addresses by job and number as plain data."""
        return {job: dict(tasks) for job, tasks in self._tasks.items()}

    def num_tasks(self, job_name: str) -> int:
        """Return the number of tasks in a job."""
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Return the numbers of a job's tasks."""
        return list(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return the address of a task."""
        tasks = self._job(job_name)
        if task_index not in tasks:
            raise MissingKeyError(
                f"ClusterSpec: job {job_name!r} has no task {task_index!r}; it has "
                f"{', '.join(map(str, tasks))}"
            )
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Return the addresses of a job's tasks by number, None for missing tasks."""
        tasks = self._job(job_name)
        return [tasks.get(i) for i in range(max(tasks) + 1)]

    def _job(self, name: str) -> dict[int, str]:
        if name not in self._tasks:
            raise MissingKeyError(
                f"ClusterSpec: no job {name!r}; there are {', '.join(self._tasks)}"
            )
        return self._tasks[name]

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._tasks == other._tasks

    def __hash__(self) -> int:
        return hash(str(self._tasks))

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()})"


def _number_tasks(job: str, tasks: Any) -> dict[int, str]:
    """Return the validated addresses of a job by task number."""
    if isinstance(tasks, str) or not isinstance(tasks, (Sequence, Mapping)):
        raise ArgumentTypeError(
            f"ClusterSpec: job {job!r}: expected a list of addresses, or a dict by "
            f"number; received {tasks!r}"
        )
    pairs = tasks.items() if isinstance(tasks, Mapping) else enumerate(tasks)
    addresses = dict(sorted(pairs))
    for index, address in addresses.items():
        if type(index) is not int or index < 0:
            raise ArgumentError(
                f"ClusterSpec: job {job!r}: expected a number >= 0 of a task; received "
                f"{index!r}"
            )
        host_and_port(address)
    if not addresses:
        raise ArgumentError(f"ClusterSpec: job {job!r} has no tasks")
    return addresses


def host_and_port(address: Any) -> tuple[str, int]:
    """Split an address into host and port.

    Raises:
        ArgumentError: if it is invalid.
    """
    host, _, port = str(address).rpartition(":")
    if not isinstance(address, str) or not host or not port.isdecimal():
        raise ArgumentError(f"expected an address, host:port; received {address!r}")
    if not 0 < int(port) < 1 << 16:
        raise ArgumentError(f"expected a port below 65,536; received {address!r}")
    return host.strip("[]"), int(port)
