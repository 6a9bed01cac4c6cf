"""Tests of GPU groups with a stand-in for NCCL in host memory, on 2 to 4 processes."""

import hashlib
import re

import numpy as np
import pytest

from tests.backends.cuda.host import GXX
from tests.comm.nccl_ranks import GCC, WHY_NOT, build, calls, run
from tests.comm.nccl_scenarios import TERMS
from tests.comm.test_sum_plans import expected
from toolkit.comm import nccl
from toolkit.comm.nccl import Span, span_of
from toolkit.errors import ArgumentError

pytestmark = pytest.mark.skipif(GCC is None, reason=WHY_NOT)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("nccl"))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.one_in(2)
def test_bytes_arrive(library, tmp_path, size):
    for rank, report in enumerate(run("results", library, tmp_path, size)):
        assert (report["rank"], report["size"]) == (rank, size)
        assert report["all_gather"] == [2999 + 10000 * r for r in range(size)]
        varying = [10000 * r + 100 * k for r in range(size) for k in range(r)]
        assert report["varying"] == varying
        assert report["crossed"] == [
            10 * r + rank for r in range(size) for _ in range(rank + 1)
        ]
        assert report["broadcast"] == [size - 1] * 5
        total = [size * i + sum(range(size)) for i in range(12 * size)]
        assert report["added"] == total
        assert report["part"] == total[12 * rank : 12 * rank + 12]
        assert report["received"] == ([rank - 1, 42] if rank % 2 else [0, 0])
        assert report["around"] == [(rank - 1) % size, 42]


def test_all_ranks_make_the_same_calls_in_the_same_order(library, tmp_path):
    run("call_everything", library, tmp_path, 3)
    first, *later_calls = calls(tmp_path, 3)
    assert later_calls == [first, first]
    exchanged = ["GroupStart", *["Send 64"] * 3, *["Recv 64"] * 3, "GroupEnd"]
    joint = ["GroupStart", "AllGather 64", "AllGather 8", "GroupEnd"]
    assert first == [
        *("CommInitRankConfig 3", "AllGather 64", "Broadcast 64 from 0"),
        *joint,
        *exchanged,
        *("CommFinalize", "CommDestroy"),
    ]


def test_groups_split(library, tmp_path):
    reports = run("use_split_groups", library, tmp_path, 4)
    assert [f["size"] for f in reports] == [2] * 4
    assert [f["rank"] for f in reports] == [1, 1, 0, 0]
    assert [f["everyone"] for f in reports] == [[2, 0], [3, 1], [2, 0], [3, 1]]


@pytest.mark.parametrize("how", ["ERROR", "HANG"])
@pytest.mark.one_in(2)
def test_failure_of_one_rank_aborts_and_reconnects(library, tmp_path, how):
    settings = {1: {f"FAKE_NCCL_{how}": "1"}}
    reports = run("recover_from_failure", library, tmp_path, 3, settings)
    for rank, rows in enumerate(reports):
        is_told = how == "ERROR" and rank == 1
        assert rows["kind"] == ("RankLostError" if is_told else "StalledError")
        words = "remote process exited" if is_told else "not done after 2 s"
        assert words in rows["error"]
        assert "step" in rows["error"] or is_told
        assert "failed earlier" in rows["again"]
        assert "abort it on every rank" in rows["again"]
        assert "was destroyed" in rows["ended"]
        assert rows["after"] == [0, 1, 2]
    for log in calls(tmp_path, 3):
        assert log.count("CommAbort") == 2  # of the group, and of its part
        assert "CommFinalize" in log


def test_another_thread_may_abort(library, tmp_path):
    settings = {0: {"FAKE_NCCL_HANG": "0"}}
    for rows in run("aborted_by_another_thread", library, tmp_path, 2, settings):
        assert rows["waited"]
        assert rows["ended"]
        assert "was destroyed" in rows["error"][0]


def test_wait_for_peers_has_a_timeout(library, tmp_path):
    first, _ = run("wait_for_absent_neighbour", library, tmp_path, 2)
    assert "init: not done after 0.5 s" in first["error"]
    assert first["seconds"] < 5


def test_ranks_are_refused_consistently(library, tmp_path):
    reports = run("report_refusals", library, tmp_path, 2)
    assert reports[0] == reports[1]
    assert "ranks 0 and 1 use the same GPU (GPU-7)" in reports[0]["shared"]
    assert "not supported and may lead to hangs" in reports[0]["shared"]
    assert "rank 1: libnccl.so.2 was not found" in reports[0]["missing"]
    for log in calls(tmp_path, 2):
        assert not any("Init" in call for call in log)


@pytest.mark.parametrize("version, is_refused", [("23203", False), ("22907", True)])
def test_ranks_share_a_gpu_if_nccl_can(library, tmp_path, version, is_refused):
    variables = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "FAKE_NCCL_VERSION": version}
    for rows in run(
        "report_refusals", library, tmp_path, 2, {0: variables, 1: variables}
    ):
        assert bool(rows["shared"]) == is_refused


def test_nccl_may_refuse_shared_gpus(library, tmp_path):
    device = {"FAKE_NCCL_DEVICE": "7"}
    with pytest.raises(AssertionError, match="Duplicate GPU detected : rank"):
        run("call_everything", library, tmp_path, 2, {0: device, 1: device})


def test_versions_must_agree(library, tmp_path):
    settings = {0: {"FAKE_NCCL_VERSION": "22707"}}
    reports = run("unlike", library, tmp_path, 2, settings)
    assert reports[0] == reports[1]
    assert reports[0].endswith("one version on all ranks; received 2.27.7, 2.32.3")


def test_an_unknown_version_is_refused_on_all_ranks(library, tmp_path):
    settings = {1: {"FAKE_NCCL_VERSION": "23300"}}
    reports = run("unlike", library, tmp_path, 2, settings)
    assert reports[0] == reports[1]
    assert re.search("rank 1: NCCL 2.33.0: .* from 2.18.1 to 2.32", reports[0])


def test_different_receive_size_is_an_error(library, tmp_path):
    reports = run("mismatched", library, tmp_path, 2)
    assert "rank 0 sent 64 bytes, rank 1 expected 32" in reports[1]


def test_sums_that_differ_between_ranks_are_errors(library, tmp_path):
    sizes, names = run("unlike_sums", library, tmp_path, 2)[1]
    assert "rank 0 sent 64 bytes, rank 1 expected 32" in sizes
    assert "rank 0 makes call 15, rank 1 call 17" in names


def test_capture_on_one_rank_alone_is_an_error(library, tmp_path):
    reports = run("captured_on_one_rank", library, tmp_path, 2)
    words = "rank 0 calls in a captured graph, rank 1 outside of one"
    assert words in reports[1]


@pytest.mark.skipif(GXX is None, reason="g++ is not installed")
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.one_in(2)
def test_device_sums_match_tree_sums(library, tmp_path, size):
    reports = run("sums", library, tmp_path, size)
    expected_bytes = [
        expected(number, term).tobytes() for number, term in enumerate(TERMS)
    ]
    hashes = [hashlib.sha256(content).hexdigest() for content in expected_bytes]
    for rows in reports:
        assert rows["sums"] == [hashes, hashes]
        kinds = [name.rpartition("_")[0] for name in rows["kernels"]]
        assert kinds == ["tree_sum", "tree_sum", "tree_max"] * 2 + ["tree_sum"]
    assert "".join(rows["part"] for rows in reports) == expected_bytes[0].hex()
    if size > 1:
        names = [[call.split()[0] for call in log] for log in calls(tmp_path, size)]
        for log in names:
            # For the transfer, the equal shards, and the unequal shards.
            assert log.count("GroupStart") == 2 * 2 + 1
            assert log.count("AllGather") == 2


@pytest.mark.skipif(GXX is None, reason="g++ is not installed")
def test_gpu_step_passes_on_the_host(library, tmp_path):
    (report,) = run("gpu_step", library, tmp_path, 1)
    assert report.pop("version") == "2.32.3"
    assert set(report.values()) == {True}, report
    assert len(report) == 7
    (log,) = calls(tmp_path, 1)
    assert log.count("CommAbort") == 1
    assert log.count("CommDestroy") == 2


class OnDevice:
    """The interface of an array on a device."""

    def __init__(self, strides=None):
        self.__cuda_array_interface__ = {
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (4096, False),
            "strides": strides,
        }


def test_buffers_are_memory_of_a_device():
    assert span_of(OnDevice()) == Span(4096, 24)
    with pytest.raises(ArgumentError, match=r"contiguous array; received .*\(4, 8\)"):
        span_of(OnDevice((4, 8)))
    with pytest.raises(ArgumentError, match="memory of a GPU .* received ndarray"):
        span_of(np.zeros(3))


class Recorder:
    """A communicator that records its calls."""

    def __init__(self, rank=0, size=2):
        self.properties = {"CommUserRank": rank, "CommCount": size}
        self.calls = []

    def query(self, name):
        return self.properties[name]

    def enqueue(self, label, calls, stream):
        self.calls += calls


class Control:
    rank, size = 0, 2


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda g, a: g.send(a, 1, tag=3), "no tags.*received 3"),
        (lambda g, a: g.send(a, 2), "a rank from 0 to 1; received 2"),
        (lambda g, a: g.broadcast(a, -1), "a rank from 0 to 1; received -1"),
        (lambda g, a: g.split(-1, 0), "color >= 0; received -1"),
        (lambda g, a: g.all_gather(a, a), "expected 128 bytes of receive.*received 64"),
        (
            lambda g, a: g.all_gather_varying(a, a, [32, 32]),
            "expected 32 bytes of rank",
        ),
        (lambda g, a: g.all_to_all(a, [1], a, [1, 1]), "2 counts and offsets of send"),
        (lambda g, a: g.all_to_all(a, [60, 5], a, [1, 1]), "inside of its 64 bytes"),
        (lambda g, a: g.all_to_all(a, [-1, 5], a, [1, 1]), "inside of its 64 bytes"),
    ],
)
def test_bad_arguments_are_refused_before_a_call(call, words):
    recorder = Recorder()
    group = nccl.NcclGroup(recorder, Control(), 0)
    with pytest.raises(ArgumentError, match=words):
        call(group, Span(4096, 64))
    assert not recorder.calls


def test_empty_transfers_make_no_calls():
    recorder = Recorder()
    group = nccl.NcclGroup(recorder, Control(), 0)
    empty = Span(4096, 0)
    group.all_gather(empty, empty)
    group.broadcast(empty)
    group.all_to_all(empty, [0, 0], empty, [0, 0])
    assert not recorder.calls
