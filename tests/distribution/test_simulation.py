"""Test simulated steps against manual calculations and formulas."""

import numpy as np
import pytest

import toolkit
from toolkit import layers
from toolkit.cli import main
from toolkit.distribution import Link, simulate
from toolkit.distribution.timeline import Work, expected_maximum, simulate_step

SLOW = Link(latency=1e-3, bandwidth=1e6)


def model():
    network = toolkit.Sequential(
        [toolkit.Input((64,)), layers.Dense(64), layers.Dense(8)]
    )
    network.compile("adam", "mse")
    return network


def simulated(**options):
    x, y = np.zeros((1, 64), "float32"), np.zeros((1, 8), "float32")
    return simulate(model(), x=x, y=y, batch_size=4, timing=lambda k: 1e-3, **options)


def test_all_reduce_equals_the_manual_time():
    # 2 * 3/4 * 4000 bytes at 1 MB/s and 2 * 2 messages
    assert SLOW.seconds("all_reduce", 4000, 4) == pytest.approx(0.006 + 0.004)
    link = Link(1e-3, 1e6, 2, 1e-4, 1e7)
    inner = 2 * (2000 / 1e7 + 1e-4)
    assert link.seconds("all_reduce", 4000, 4) == pytest.approx(inner + 0.004 + 0.002)
    assert SLOW.seconds("all_gather", 4000, 4) == pytest.approx(0.003 + 0.002)


def test_step_equals_the_manual_time():
    # a -> sum -> c; b does not wait for the sum, which takes 2 + 2 ms.
    work = [Work(1e-3), Work(0, (0,), "all_reduce", 2000), Work(3e-3), Work(1e-3, (1,))]
    assert simulate_step(work, 2, SLOW).seconds == pytest.approx(9e-3)
    assert simulate_step(work, 2, SLOW, overlap=True).seconds == pytest.approx(6e-3)
    assert simulate_step(work, 1, SLOW).seconds == pytest.approx(5e-3)
    assert simulate_step(work, 2, SLOW).exchanged == {"all_reduce": 2000}


def test_stragglers():
    assert expected_maximum(1) == pytest.approx(0)
    assert expected_maximum(100) == pytest.approx(2.5076, abs=0.01)
    assert simulate_step([Work(1.0)], 100, SLOW, jitter=0.1).seconds == pytest.approx(
        1.2507, 1e-3
    )


def test_exchanged_values_are_the_gradients():
    results = simulated(ranks=[2, 8], link=SLOW)
    gradients = 4 * (64 * 64 + 64 + 64 * 8 + 8)
    moved = results.of("data parallel", 8).exchanged["all_reduce"]
    assert gradients <= moved <= 1.02 * gradients


def test_memory_equals_the_formula():
    results = simulated(ranks=[4], link=SLOW)
    weights = 4 * (64 * 64 + 64 + 64 * 8 + 8)
    total_memory = results.of("data parallel", 4).memory
    assert total_memory >= 3 * weights
    saved = total_memory - results.of("ZeRO 1", 4).memory
    assert saved == pytest.approx(2 * weights * 3 / 4, rel=0.05)
    saved = total_memory - results.of("FSDP", 4).memory
    assert saved == pytest.approx(3 * weights * 3 / 4, rel=0.05)


def test_more_ranks_are_less_efficient_and_better_links_faster():
    results = simulated(ranks=[1, 8, 64, 4096], link=SLOW)
    shares = [results.of("data parallel", n).efficiency for n in (1, 8, 64, 4096)]
    assert shares[0] == pytest.approx(1)
    assert shares == sorted(shares, reverse=True)
    better = simulated(ranks=[8], link=Link()).of("data parallel", 8)
    assert better.seconds < results.of("data parallel", 8).seconds
    assert results.best(8).layout == "ZeRO 1"
    assert results.best(8, memory=1) is None
    assert "4,096" in str(results)
    assert "<svg" in results.plot().svg()


def test_bad_arguments():
    with pytest.raises(toolkit.errors.ArgumentError, match="ranks and batch_size"):
        simulated(ranks=0)
    with pytest.raises(toolkit.errors.ArgumentError, match="bandwidths"):
        Link(bandwidth=0)


def test_command_prints_a_simulation(tmp_path, capsys):
    path, picture = tmp_path / "model.keras", tmp_path / "curve.svg"
    network = model()
    network.train_on_batch(np.zeros((4, 64), "float32"), np.zeros((4, 8), "float32"))
    network.save(path)
    arguments = ["simulate", str(path), "--ranks", "2", "4096", "--plot", str(picture)]
    assert main([*arguments, "--batch-size", "4"]) == 0
    text = capsys.readouterr().out
    assert "predictions, not measurements" in text and "4,096" in text
    assert picture.read_text("utf-8").startswith("<svg")


def test_command_needs_a_compiled_model(tmp_path, capsys):
    path = tmp_path / "model.keras"
    toolkit.Sequential([toolkit.Input((3,)), layers.Dense(2)]).save(path)
    assert main(["simulate", str(path)]) == 1
    assert "expected a compiled model" in capsys.readouterr().err
