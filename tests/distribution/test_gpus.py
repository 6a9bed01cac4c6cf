"""Data parallel training on GPUs: a device in host memory and a stand-in for NCCL."""

import os

import numpy as np
import pytest

from tests.backends.cuda.host import GXX
from tests.cli.test_hosts import SSH
from tests.comm.nccl_ranks import GCC, WHY_NOT
from tests.distribution.gpu_scripts import BEGIN

MODELS = ["mlp", "cnn", "lstm", "gpt", "mixed"]

pytestmark = [
    pytest.mark.skipif(GCC is None, reason=WHY_NOT),
    pytest.mark.skipif(GXX is None, reason="g++ is not installed"),
]


@pytest.mark.parametrize("model", ["mlp", "cnn", "lstm", "gpt"])
@pytest.mark.one_in(2)
def test_one_hash_for_any_number_of_gpus(train_on_gpus, model):
    """The last batch has one row, so three of four ranks have none."""
    ((expected, _),) = train_on_gpus(model, 1)
    for ranks in (2, 4):
        for results, facts in train_on_gpus(model, ranks):
            assert results == expected, ranks
            assert not facts["warned"]
    (((on_cpu, *_), _),) = train_on_gpus(model, 1, gpu=False)
    np.testing.assert_allclose(expected[0]["loss"], on_cpu["loss"], rtol=1e-3)


def test_gpus_of_two_hosts_have_one_hash(train_on_gpus, tmp_path, monkeypatch):
    """The control messages of ranks on other hosts go over the network."""
    ((expected, _),) = train_on_gpus("mlp", 1)
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    hosts = ["--hosts", "127.0.0.2:2,127.0.0.3:2"]
    reports = train_on_gpus("mlp", 4, flags=hosts)
    assert len(reports) == 4
    for results, facts in reports:
        assert results == expected
        assert set(facts["steps"][-2]) == {"replay", "copy"}


@pytest.mark.parametrize(
    "model", ["quads", *(pytest.param(x, marks=pytest.mark.slow) for x in MODELS)]
)
def test_one_hash_for_parts_of_different_sizes(train_on_gpus, model):
    """Rows of the parts start at other addresses on other numbers of GPUs."""
    ((expected, _),) = train_on_gpus(model, 1, batch=13)
    for ranks in (2, 3):
        for results, _ in train_on_gpus(model, ranks, batch=13):
            assert results == expected, ranks


def test_steps_are_single_launches_without_waits(train_on_gpus):
    reports = train_on_gpus("mlp", 2)
    uncaptured = train_on_gpus("mlp", 2, captures=False)
    for (results, facts), (expected, _) in zip(reports, uncaptured, strict=True):
        assert results == expected
        # An epoch has five steps of one program, and one of another. The first run of
        # each is not captured. The next runs upload tables with new addresses.
        steps = facts["steps"]
        assert [step.get("replay", 0) for step in steps] == [0, *[1] * 4, 0, *[1] * 12]
        for step in [*steps[3:5], *steps[6:11], *steps[12:]]:
            assert set(step) == {"replay", "copy"}, step


def test_ranks_capture_alike_after_a_buffer_moves_on_one_of_them(train_on_gpus):
    """The stand-in for NCCL refuses a collective that one rank alone captures."""
    expected = train_on_gpus("mlp", 2)
    for (results, facts), (unmoved, _) in zip(
        train_on_gpus("mlp", 2, shares=True), expected, strict=True
    ):
        assert results == unmoved
        assert [step.get("replay", 0) for step in facts["steps"]].count(0) == 2


def test_without_nccl_sums_are_copied_through_the_host(train_on_gpus):
    expected = train_on_gpus("mlp", 2)
    for rank, ((results, facts), (by_nccl, _)) in enumerate(
        zip(train_on_gpus("mlp", 2, nccl=None), expected, strict=True)
    ):
        assert results == by_nccl
        assert len(facts["warned"]) == (rank == 0)


@pytest.mark.parametrize(
    "options",
    [
        {"parallel": {"shard_optimizer": True}},
        {"optimizer": {"gradient_accumulation_steps": 3}},
    ],
)
@pytest.mark.one_in(2)
def test_options_have_one_hash(train_on_gpus, options):
    ((expected, _),) = train_on_gpus("wide", 1, **options)
    for results, facts in train_on_gpus("wide", 2, **options):
        assert results == expected
        assert set(facts["steps"][-2]) == {"replay", "copy"}


@pytest.mark.parametrize(
    "model, parallel", [("mlp", {}), ("wide", {"shard_optimizer": True})]
)
@pytest.mark.one_in(2)
def test_sums_by_nccl_are_close_to_sums_along_a_tree(train_on_gpus, model, parallel):
    """The stand-in adds four ranks in another order than the tree."""
    (expected, _), *_ = train_on_gpus(model, 4, parallel=parallel)
    reports = train_on_gpus(model, 4, parallel={**parallel, "reduction": "nccl"})
    for results, facts in reports:
        assert results == reports[0][0]
        assert results[3] != expected[3], "the same bits as by the tree"
        np.testing.assert_allclose(results[0]["loss"], expected[0]["loss"], rtol=1e-4)
        assert set(facts["steps"][-2]) == {"replay", "copy"}


@pytest.mark.parametrize("model", ["mixed", "table", "rows"])
@pytest.mark.one_in(2)
def test_other_models_have_one_hash(train_on_gpus, model):
    ((expected, _),) = train_on_gpus(model, 1)
    for results, _ in train_on_gpus(model, 2):
        assert results == expected


CUSTOM_LOOP = (
    BEGIN
    + """
from toolkit import ops
distribution.set_distribution(distribution.DataParallel(shards=4))
tk.utils.set_random_seed(0)
model = tk.Sequential([tk.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(1)])
optimizer = tk.optimizers.SGD(0.1, momentum=0.9)

@tk.function(distribute=True)
def step(x, y):
    with tk.GradientTape() as tape:
        out = model(x, training=True)
        loss = ops.mean(ops.square(out - y))
    weights = model.trainable_variables
    optimizer.apply(tape.gradient(loss, weights), weights)
    whole_numbers = ops.cast(10 * x, "int32")
    return (
        out, loss, ops.any(x > 0.99), ops.all(x > 0), ops.max(x), ops.argmax(x),
        ops.prod(x), ops.sum(whole_numbers), ops.max(whole_numbers),
        ops.std(x, axis=0), ops.cumsum(x, axis=0), ops.sort(x, axis=0),
    )

x = np.random.default_rng(0).random((9, 6), "float32")
results = [[np.asarray(value) for value in step(x, x[:, :1])] for _ in range(3)]
np.testing.assert_allclose(results[0][9], x.std(axis=0), rtol=1e-5)
np.testing.assert_array_equal(results[0][11], np.sort(x, axis=0))
tell([[digest(value) for row in results for value in row], digest(*model.variables)])
"""
)


REFUSALS = (
    BEGIN
    + """
mesh = distribution.DeviceMesh((2,), ["batch"], ["gpu:0", "gpu:1"])
stages = distribution.DeviceMesh((2,), ["stage"], ["gpu:0", "gpu:1"])
tell([
    message(lambda: fit(distribution.DataParallel(devices=["cpu:0", "cpu:1"]))),
    message(lambda: fit(distribution.DataParallel(mesh), "cpu:0")),
    message(lambda: fit(distribution.PipelineParallel(
        stages=["first", "dense"], device_mesh=stages))),
    message(lambda: (tk.config.set_autotune(True), fit(distribution.DataParallel()))),
    message(lambda: (tk.config.set_autotune(False), fit(distribution.DataParallel()))),
])
"""
)


def test_custom_loops_have_one_hash(run_on_gpus):
    (expected,) = run_on_gpus(CUSTOM_LOOP, 1)
    for ranks in (2, 4):
        assert all(report == expected for report in run_on_gpus(CUSTOM_LOOP, ranks))


def test_unsupported_jobs_are_refused_on_all_ranks(run_on_gpus):
    reports = run_on_gpus(REFUSALS)
    words = [
        "the step runs on gpu:0, so the mesh must have GPUs; received cpu:0, cpu:1",
        "the step runs on cpu:0, so the mesh must have CPUs; received gpu:0, gpu:1",
        "supported only on the CPU; received the device gpu:0",
        "autotuning is not supported in a job of several processes",
        "no error",
    ]
    assert reports[0] == reports[1]
    for text, expected in zip(reports[0], words, strict=True):
        assert expected in text


def test_sums_by_nccl_need_nccl(run_on_gpus):
    script = (
        BEGIN
        + """
device.library = None
tell(message(lambda: fit(distribution.DataParallel(reduction="nccl"))))
"""
    )
    for text in run_on_gpus(script):
        assert text.startswith("BackendUnavailable: "), text
        assert "reduction='nccl' needs NCCL: gpu:0: no library connects" in text


def test_ranks_on_one_gpu_are_refused(run_on_gpus, monkeypatch):
    script = (
        BEGIN
        + """
gpus.RankDevice.identity = "0000:1B:00.0"
tell(message(lambda: fit(distribution.DataParallel())))
"""
    )
    for text in run_on_gpus(script):
        assert "one GPU for each rank; received 0000:1B:00.0 on rank 0, 1" in text
    monkeypatch.setenv("TOOLKIT_SHARE_GPU", "on")
    assert run_on_gpus(script) == ["no error"] * 2


def test_failed_rank_ends_the_job(run_on_gpus):
    script = (
        BEGIN
        + """
class Fails(tk.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if rank == 1 and batch == 2:
            raise RuntimeError("rank 1 fails in batch 2")

model = fit(distribution.DataParallel())
x, y = np.ones((64, 4), "float32"), np.ones((64, 1), "float32")
model.fit(x, y, batch_size=8, verbose=0, callbacks=[Fails()])
"""
    )
    result = run_on_gpus(script, code=1)
    assert "rank 1 fails in batch 2" in result.errors
    assert "rank 1 has failed" in result.errors
    assert result.seconds < 60


def test_state_is_saved_and_restored(run_on_gpus):
    """The optimizer is sharded over the GPUs."""
    script = (
        BEGIN
        + """
model = fit(distribution.DataParallel(shard_optimizer=True), units=512)
slots = [v for v in model.optimizer.variables if v.placement is not None]
assert slots and all(type(v._tensor._array) is gpus.OpaqueArray for v in slots)
tell(save_and_restore(model))
"""
    )
    for values, loaded, restored, state, restored_state in run_on_gpus(script):
        assert loaded == restored == values
        assert restored_state == state
