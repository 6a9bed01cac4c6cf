"""Tests of the networks, the data and the measurements, at small sizes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import toolkit
from toolkit.bench import measure, networks
from toolkit.bench.measure import KINDS, repeat_call
from toolkit.bench.workloads import ALL, STACKS, WORKLOADS, stack_flops

PARAMETERS = {
    "cifar_cnn": 1_250_858,
    "mnist_mlp": 669_706,
    "tiny_mlp": 1_633,
    "mlp": 101_770,
    "lstm": 1_411_713,
    "gpt": 544_768,
    "resnet": 78_714,
}


def output_of(code):
    """Return the output of a new process."""
    process = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout


@pytest.mark.parametrize("name", PARAMETERS)
def test_network_accepts_its_data(name):
    workload = next(w for n, w in WORKLOADS.items() if n.startswith(f"{name}/"))
    workload = workload.shorten()
    model = workload.build(toolkit)
    x, y = workload.make_data()
    assert len(x) == len(y) == workload.batch * workload.steps
    assert model(x[:1]).shape[0] == 1
    assert model.count_params() == PARAMETERS[name]


def test_names_match_kinds():
    for name, workload in ALL.items():
        assert workload.kind in KINDS
        assert name in WORKLOADS or workload.bar is None
    for name, workload in WORKLOADS.items():
        assert 0 < workload.bar <= 1
        assert hasattr(networks, name.partition("/")[0])


def test_growth_doubles_one_thing():
    base = stack_flops(*STACKS["base"])
    assert stack_flops(*STACKS["batch x 2"]) == 2 * base
    assert stack_flops(*STACKS["width x 2"]) == 4 * base
    assert 2 * base < stack_flops(*STACKS["depth x 2"]) < 2.2 * base


@pytest.mark.parametrize("name", ["tiny_mlp/fit", "mlp/call", "mlp/function"])
def test_samples_are_seconds(name, monkeypatch):
    monkeypatch.setattr(measure, "SAMPLE_SECONDS", 0.0)
    workload = WORKLOADS[name].shorten()
    sample = KINDS[workload.kind].prepare(workload, "toolkit")
    assert 0 < sample() < 10


def test_a_loss_that_is_no_number_fails():
    def broken(count):
        x, y = WORKLOADS["tiny_mlp/fit"].data(count)
        return x * np.nan, y

    workload = measure.Workload("", "fit", networks.tiny_mlp, broken, 4, 2)
    with pytest.warns(UserWarning, match="nan"):
        with pytest.raises(ArithmeticError, match="nan"):
            measure.prepare_fit(workload, "toolkit")


def test_repeated_calls_until_a_sample_is_long_enough():
    calls = []
    sample = repeat_call(lambda: calls.append(1), minimum=1e-3)
    assert 0 < sample() < 1e-3
    assert len(calls) > measure.WARM_UP_CALLS + 2


def test_peak_memory_includes_freed_arrays():
    code = (
        "import numpy as np; from toolkit.bench.measure import peak_memory;"
        "before = peak_memory(); np.ones(12_500_000); print(peak_memory() - before)"
    )
    assert 98e6 < int(output_of(code)) < 110e6


def test_nothing_is_imported_before_it_is_measured():
    code = (
        "import json, sys, toolkit.bench.worker; print(json.dumps(sorted(sys.modules)))"
    )
    modules = json.loads(output_of(code))
    assert "numpy" not in modules
    assert [name for name in modules if name.startswith("toolkit.")] == [
        "toolkit.bench",
        *(
            f"toolkit.bench.{name}"
            for name in ("measure", "networks", "processes", "worker", "workloads")
        ),
    ]
