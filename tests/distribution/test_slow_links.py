"""Test jobs whose gradients a thread sends: equal bits, also after lost ranks."""

import pytest

from tests.distribution.test_elastic import KILL, LATER, train


def test_job_on_a_slow_link_has_the_same_bits(tmp_path, monkeypatch):
    ((*expected, _),) = train(tmp_path, 1)
    monkeypatch.setenv("TOOLKIT_LINK", "0.0001,1e8")
    assert train(tmp_path, 2) == [[*expected, 2]] * 2


@pytest.mark.parametrize(
    "moment",
    [
        f"if self.steps == 5 and rank == 1: {KILL.format('SIGKILL')}",
        f"if self.steps == 7 and rank == 0: {LATER}",
    ],
    ids=["between steps", "in a step"],
)
@pytest.mark.one_in(2)
def test_rank_lost_during_an_exchange_of_a_thread(tmp_path, monkeypatch, moment):
    ((*expected, _),) = train(tmp_path, 1)
    monkeypatch.setenv("TOOLKIT_OVERLAP", "on")
    assert train(tmp_path, 3, moment, "--elastic") == [[*expected, 2]] * 2


def test_slow_link_cannot_be_elastic(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLKIT_LINK", "0.0001,1e8")
    with pytest.raises(AssertionError, match="TOOLKIT_LINK: an elastic job"):
        train(tmp_path, 2, "pass", "--elastic")
