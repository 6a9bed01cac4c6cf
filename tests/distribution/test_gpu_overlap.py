"""Collectives of simulated GPUs on a second stream, and of large sharded weights."""

import pytest

from tests.backends.cuda.host import GXX
from tests.comm.nccl_ranks import GCC, WHY_NOT

pytestmark = [
    pytest.mark.skipif(GCC is None, reason=WHY_NOT),
    pytest.mark.skipif(GXX is None, reason="g++ is not installed"),
]

# Work of a backward pass; the updates after it are elementwise.
HEAVY = ("matmul", "product", "conv")


@pytest.fixture
def small_buckets(monkeypatch):
    """Let sums of 64 KiB start separately, as for a link of this speed."""
    monkeypatch.setenv("TOOLKIT_LINK", "1e-6,1e9")


def overlapped(kernels):
    """Return the number of collectives during which matrices are multiplied."""
    heavy = [first for name, (first, *_), _ in kernels if name.startswith(HEAVY)]
    return sum(
        any(moments[0] < moment <= moments[-1] for moment in heavy)
        for _, moments, kinds in kernels
        if kinds == ["collective"]
    )


@pytest.mark.parametrize(
    "model, scale, count",
    [
        ("deep", 1, 4),
        pytest.param("cnn", 8, 1, marks=pytest.mark.slow),
        pytest.param("gpt", 4, 2, marks=pytest.mark.slow),
    ],
)
def test_sums_run_during_the_backward_pass(
    train_on_gpus, monkeypatch, small_buckets, model, scale, count
):
    """In all orders of the streams, bits are equal to the bits without overlap."""
    options = {"scale": scale, "epochs": 1}
    ((expected, _),) = train_on_gpus(model, 1, **options)
    cases = [(2, {"lag": "late"}), (2, {"lag": "early"}), (4, {"lag": "late"})]
    for ranks, case in [*cases, (2, {"lag": "late", "captures": False})]:
        for results, facts in train_on_gpus(model, ranks, **options, **case):
            assert results == expected, (ranks, case)
            assert overlapped(facts["kernels"]) >= count
            if case.get("captures", True):
                assert facts["steps"][-2] == {"replay": 1, "copy": 1}
    monkeypatch.setenv("TOOLKIT_OVERLAP", "off")
    for results, facts in train_on_gpus(model, 2, **options):
        assert results == expected
        assert overlapped(facts["kernels"]) == 0


@pytest.mark.parametrize(
    "shape, lag",
    [
        ((2, 1), "late"),
        pytest.param((2, 1), "early", marks=pytest.mark.slow),
        pytest.param((4, 1), "late", marks=pytest.mark.slow),
    ],
)
def test_large_weights_are_gathered_during_other_layers(train_on_gpus, shape, lag):
    """The weights of the first layers are gathered again in the backward pass."""
    options = {"layouts": "large", "epochs": 1}
    ((expected, _),) = train_on_gpus("large", 1, mesh=(1, 1), **options)
    for results, facts in train_on_gpus(
        "large", shape[0], mesh=shape, lag=lag, **options
    ):
        assert results == expected
        kernels = facts["kernels"]
        kinds = [name for name, _, _ in kernels]
        assert kinds.count("all_gather") == 4 + 1
        assert kinds.count("reduce_scatter") == 4
        # All but the first gather and the last two sums.
        assert overlapped(kernels) >= 4 + 2
        assert facts["steps"][-2] == {"replay": 1, "copy": 1}


@pytest.mark.parametrize(
    "ranks, overlap",
    [
        (2, "on"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(3, "off"), (4, "on")]
        ),
    ],
)
def test_large_weights_on_cpus_have_one_hash(
    train_on_gpus, monkeypatch, ranks, overlap
):
    """The last batch has one row, so some ranks have no term of a gradient."""
    options = {"layouts": "large", "epochs": 1, "gpu": False}
    ((expected, _),) = train_on_gpus("large", 1, mesh=(1, 1), **options)
    monkeypatch.setenv("TOOLKIT_OVERLAP", overlap)
    for results, facts in train_on_gpus("large", ranks, mesh=(ranks, 1), **options):
        assert results == expected
        kinds = [name for name, _, _ in facts["kernels"]]
        assert kinds.count("all_gather") == 4 + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"parallel": {"shard_optimizer": True}},
        {"layouts": "large", "optimizer": {"gradient_accumulation_steps": 3}},
    ],
)
def test_options_with_large_weights_have_one_hash(train_on_gpus, options):
    def meshed(ranks):
        mesh = {"mesh": (ranks, 1)} if "layouts" in options else {}
        return {"epochs": 1, **options, **mesh}

    ((expected, _),) = train_on_gpus("large", 1, **meshed(1))
    for results, _ in train_on_gpus("large", 2, lag="late", **meshed(2)):
        assert results == expected
