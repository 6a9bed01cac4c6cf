"""Tests of toolkit.ray that need no Ray."""

import sys

import numpy as np
import pytest

import toolkit
from toolkit import comm
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    LaunchError,
    MissingKeyError,
    UnsupportedError,
)
from toolkit.ray.trainer import find_free_port, set_variables


class Shard:
    """Shard with the interface of Ray Data."""

    def __init__(self, workers=1):
        self.options, self.workers = [], workers

    def world_size(self):
        return self.workers

    def iter_batches(self, **options):
        self.options.append(options)
        for start in range(0, 5, options["batch_size"]):
            rows = np.arange(start, min(5, start + options["batch_size"]))
            yield {"x": rows * 1.0, "z": rows[:, None], "y": rows % 2}


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, {"x": [0.0, 1.0], "z": [[0], [1]], "y": [0, 1]}),
        ({"features": "z"}, [[0], [1]]),
        ({"features": "x", "labels": "y"}, ([0.0, 1.0], [0, 1])),
        (
            {"features": ["x", "z"], "labels": "y"},
            ({"x": [0.0, 1.0], "z": [[0], [1]]}, [0, 1]),
        ),
    ],
)
def test_elements_of_a_dataset(options, expected):
    data = toolkit.ray.dataset(Shard(), 2, **options)
    elements = [toolkit.tree.map_structure(np.ndarray.tolist, x) for x in data]
    assert len(elements) == 3
    assert elements[0] == expected


def test_options_reach_ray_in_each_pass():
    shard = Shard()
    data = toolkit.ray.dataset(
        *(shard, 4),
        drop_last=True,
        prefetch_batches=3,
        shuffle_buffer_size=9,
        seed=7,
    )
    assert [len(list(data)) for _ in range(2)] == [2, 2]
    assert (
        shard.options
        == [
            {
                "batch_size": 4,
                "drop_last": True,
                "prefetch_batches": 3,
                "local_shuffle_buffer_size": 9,
                "local_shuffle_seed": 7,
            }
        ]
        * 2
    )


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"batch_size": 0}, ArgumentError, "batch_size of at least 1; received 0"),
        ({"prefetch_batches": -1}, ArgumentError, "prefetch_batches of at least 0"),
        ({"shuffle_buffer_size": 0}, ArgumentError, "shuffle_buffer_size of at least"),
        ({"labels": "y"}, ArgumentError, "labels='y' needs `features`"),
        ({"shard": [1, 2]}, ArgumentTypeError, r"expected a shard of Ray Data"),
    ],
)
def test_invalid_arguments_of_dataset(options, error, words):
    with pytest.raises(error, match=words):
        toolkit.ray.dataset(**{"shard": Shard(), "batch_size": 2, **options})


def test_unknown_column():
    data = toolkit.ray.dataset(Shard(), 2, features="x", labels="label")
    with pytest.raises(MissingKeyError, match=r"\['x', 'y', 'z'\]; received 'label'"):
        list(data)


def test_import_loads_no_ray_and_errors_name_its_installation(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    trainer = toolkit.ray.Trainer(print)
    with pytest.raises(UnsupportedError, match=r'Trainer: .*toolkit-nn\[ray\]"'):
        trainer.fit()
    model = toolkit.Sequential([toolkit.Input((2,)), toolkit.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = toolkit.ray.ReportCheckpointCallback()
    with pytest.raises(UnsupportedError, match="ReportCheckpointCallback: expected"):
        model.fit(np.ones((4, 2)), np.ones((4, 1)), callbacks=[callback], verbose=0)


@pytest.mark.parametrize(
    "create, words",
    [
        (lambda: toolkit.ray.Trainer(print, timeout=0), "timeout in seconds, above 0"),
        (lambda: toolkit.ray.Trainer(3), "train_loop_per_worker"),
        (lambda: toolkit.ray.ReportCheckpointCallback("step"), "'epoch' or a number"),
        (lambda: toolkit.ray.ReportCheckpointCallback(0), "'epoch' or a number"),
    ],
)
def test_invalid_arguments(create, words):
    with pytest.raises(ArgumentError, match=words):
        create()


def test_process_of_another_job_is_refused():
    comm.world()
    with pytest.raises(LaunchError, match="expected a new process for each worker"):
        set_variables({"TOOLKIT_RANK": "0"}, 1)


def test_free_ports():
    assert 1024 < find_free_port("127.0.0.1") < 65536
    assert 1024 < find_free_port("192.0.2.1") < 65536
