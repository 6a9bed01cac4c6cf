"""Jobs on simulated GPUs that lose ranks during training and continue."""

import pytest

from tests.backends.cuda.host import GXX
from tests.comm.nccl_ranks import GCC, WHY_NOT
from tests.distribution.test_elastic import KILL, LATER, ZERO, script

pytestmark = [
    pytest.mark.skipif(GCC is None, reason=WHY_NOT),
    pytest.mark.skipif(GXX is None, reason="g++ is not installed"),
]

GPUS = """
from tests.distribution import gpus
device = gpus.install(*sys.argv[1:3])
"""


@pytest.fixture
def train(run_on_gpus):
    """Return a function that returns [hash, history, number of ranks] of each rank."""

    def start(processes, moment="pass", *flags, options=""):
        text = script(moment, options=options, rows=64, batch=16)
        return run_on_gpus(GPUS + text, processes, flags=flags)

    return start


@pytest.mark.parametrize(
    "processes, moment, remaining",
    [
        (2, f"if self.steps == 5 and rank == 1: {KILL.format('SIGKILL')}", 1),
        (3, f"if self.steps == 1 and rank == 0: {KILL.format('SIGSEGV')}", 2),
        (4, f"if self.steps == 7 and rank == 2: {LATER}", 3),
        (4, f"if (rank, self.steps) in [(0, 3), (2, 6)]: {KILL.format('SIGTERM')}", 2),
    ],
    ids=["between steps", "the first one in the first step", "in a step", "two"],
)
@pytest.mark.one_in(2)
def test_fit_continues_without_lost_gpus_to_the_same_bits(
    train, processes, moment, remaining
):
    ((*expected, _),) = train(1)
    reports = train(processes, moment, "--elastic")
    assert reports == [[*expected, remaining]] * remaining


def test_shards_of_lost_gpus_are_restored_from_their_neighbours(train):
    ((*expected, _),) = train(1, options=ZERO)
    moment = f"if self.steps == 5 and rank == 1: {KILL.format('SIGKILL')}"
    assert train(3, moment, "--elastic", options=ZERO) == [[*expected, 2]] * 2


def test_lost_gpu_is_replaced(train):
    ((*expected, _),) = train(1)
    moment = "lose(self.steps, wait=True)"
    assert train(3, moment, "--elastic", "--replace") == [[*expected, 3]] * 3
