"""Collectives of simulated GPUs on a second stream, during the backward pass."""

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
