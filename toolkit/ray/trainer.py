"""Trainer of Ray Train whose workers are the ranks of a job of toolkit."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from toolkit.arguments import check_arguments
from toolkit.comm import jobs
from toolkit.comm.sockets.keys import SECRET_SIZE
from toolkit.errors import ArgumentError, LaunchError
from toolkit.ray.package import import_ray_train

_LOOPBACK = "127.0.0.1"


class Trainer:
    """Trainer of Ray Train: its workers are the ranks of one job.

    `fit` starts the workers, and each worker calls the function. In the function, a
    distribution such as `toolkit.distribution.DataParallel()` uses all workers, as in a
    script of `toolkit run --processes`. The trainer gives each worker its rank, the
    number of workers, the address of rank 0, and a random secret of the job, with which
    the workers encrypt their connections. Ray itself sends the secret to the workers.

    If a worker is lost, Ray starts all workers again, as often as the `FailureConfig`
    of `run_config` permits. `ReportCheckpointCallback` lets `fit` of the model resume
    from the last checkpoint. Each worker uses as many threads as Ray assigns CPUs to
    it, unless TOOLKIT_NUM_THREADS is set. Ray also selects the GPUs that a worker can
    use.

    Args:
        train_loop_per_worker: the function that each worker calls: without arguments,
            or with `train_loop_config`.
        train_loop_config: a dict, the argument of the function; None: it has no
            argument.
        scaling_config: a `ray.train.ScalingConfig` with the number and the resources of
            the workers. None: one worker.
        run_config: a `ray.train.RunConfig` with the storage and the FailureConfig.
        datasets: data sets of Ray Data, by name. `ray.train.get_dataset_shard` returns
            the shard of a worker, and `toolkit.ray.dataset` converts it.
        dataset_config: a `ray.train.DataConfig`, which can exclude data sets from the
            division into shards.
        timeout: the time in seconds that a worker can wait for another one before the
            job ends. None: 600, or the environment variable TOOLKIT_TIMEOUT of the
            workers.

    Example:
        >>> import toolkit
        >>> def train(config):
        ...     import toolkit as tk
        ...     tk.distribution.set_distribution(tk.distribution.DataParallel())
        ...     model = tk.Sequential([tk.Input((4,)), tk.layers.Dense(1)])
        ...     model.compile("sgd", "mse")
        ...     callback = tk.ray.ReportCheckpointCallback()
        ...     x, y = tk.ops.ones((8, 4)), tk.ops.ones((8, 1))
        ...     model.fit(x, y, epochs=config["epochs"], callbacks=[callback])
        >>> trainer = toolkit.ray.Trainer(train, train_loop_config={"epochs": 3})
        >>> # result = trainer.fit() needs the package ray
    """

    @check_arguments
    def __init__(
        self,
        train_loop_per_worker: Callable[..., object],
        *,
        train_loop_config: Mapping[str, object] | None = None,
        scaling_config: object = None,
        run_config: object = None,
        datasets: Mapping[str, object] | None = None,
        dataset_config: object = None,
        timeout: float | None = None,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise ArgumentError(
                "Trainer: expected a timeout in seconds, above 0, or None; received "
                f"{timeout!r}"
            )
        self._train_loop = train_loop_per_worker
        self._train_loop_config = train_loop_config
        self._scaling_config, self._run_config = scaling_config, run_config
        self._datasets, self._dataset_config = datasets, dataset_config
        self._timeout = timeout

    def fit(self) -> Any:
        """Start the workers, and wait for their end.

        Returns:
            A `ray.train.Result` with the last metrics, the last checkpoint, and the
            path of the run.

        Raises:
            ray.train.TrainingFailedError: a worker has failed more often than the
                FailureConfig permits.
            UnsupportedError: the package ray is not installed, or uses its old API of
                Ray Train.
        """
        import_ray_train("Trainer")
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        config = self._train_loop_config
        trainer = DataParallelTrainer(
            self._train_loop,
            train_loop_config=None if config is None else dict(config),
            backend_config=_backend_config_class()(self._timeout),
            scaling_config=self._scaling_config,
            run_config=self._run_config,
            datasets=None if self._datasets is None else dict(self._datasets),
            dataset_config=self._dataset_config,
        )
        return trainer.fit()


@cache
def _backend_config_class() -> type:
    """Return the class of configurations of the backend, which needs ray."""
    from ray.train.backend import Backend, BackendConfig

    class ToolkitBackend(Backend):
        """Backend of Ray Train that describes the job to its workers."""

        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            """Set the variables of the job in each worker."""
            start_job(worker_group, backend_config.timeout)

    class ToolkitConfig(BackendConfig):
        """Configuration of the backend.

        Args:
            timeout: see `Trainer`.
        """

        def __init__(self, timeout: float | None) -> None:
            self.timeout = timeout

        @property
        def backend_cls(self) -> type:
            """Return the class of the backend."""
            return ToolkitBackend

    return ToolkitConfig


def start_job(worker_group: Any, timeout: float | None) -> None:
    """Set the variables of a new job in each worker of a group.

    Args:
        worker_group: the workers of Ray Train, in the order of their ranks.
        timeout: see `Trainer`.
    """
    import ray

    hosts = worker_group.execute(find_host)
    host = hosts[0] if len(set(hosts)) > 1 else _LOOPBACK
    port = worker_group.execute_single(0, find_free_port, host)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    resources = worker_group.get_resources_per_worker()
    variables = {
        "TOOLKIT_PROCESSES": str(len(hosts)),
        "TOOLKIT_JOB_ADDRESS": address,
        "TOOLKIT_JOB_SECRET": secrets.token_hex(SECRET_SIZE),
    }
    if timeout is not None:
        variables["TOOLKIT_TIMEOUT"] = str(timeout)
    threads = max(1, int(resources.get("CPU", 1)))
    ray.get(
        [
            worker_group.execute_single_async(
                rank, set_variables, {**variables, "TOOLKIT_RANK": str(rank)}, threads
            )
            for rank in range(len(hosts))
        ]
    )


def find_host() -> str:
    """Return the address of the machine of this worker."""
    import ray

    host: str = ray.util.get_node_ip_address()
    return host


def find_free_port(host: str) -> int:
    """Return a port of a local address at which no process listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host if host == _LOOPBACK else "", 0))
        port: int = probe.getsockname()[1]
        return port


def set_variables(variables: Mapping[str, str], threads: int) -> None:
    """Set the variables of a job in this worker.

    Args:
        variables: the environment variables.
        threads: the number of threads, if the worker has no setting.

    Raises:
        LaunchError: this process belongs to a job already.
    """
    if jobs.has_joined():
        raise LaunchError(
            "Trainer: expected a new process for each worker; received a process that "
            "has joined a job, or that used a distribution before the function"
        )
    os.environ.update(variables)
    os.environ.setdefault("TOOLKIT_NUM_THREADS", str(threads))
