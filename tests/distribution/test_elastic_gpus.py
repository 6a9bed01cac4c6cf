"""Jobs on simulated GPUs that lose ranks during training and continue."""

import random

import pytest

from tests.backends.cuda.host import GXX
from tests.comm import ranks
from tests.comm.nccl_ranks import GCC, WHY_NOT
from tests.distribution.jobs import run
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


@pytest.fixture(scope="module")
def single(tmp_path_factory, folders):
    """Return [hash, history] of one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLKIT_DEVICE", "gpu")
        text = GPUS + script("pass", rows=64, batch=16)
        folder = tmp_path_factory.mktemp("single")
        ((*expected, _),) = run(folder, 1, text, *map(str, folders), timeout=60)
    return expected


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
    train, single, processes, moment, remaining
):
    reports = train(processes, moment, "--elastic")
    assert reports == [[*single, remaining]] * remaining


def test_shards_of_lost_gpus_are_restored_from_their_neighbours(train):
    ((*expected, _),) = train(1, options=ZERO)
    moment = f"if self.steps == 5 and rank == 1: {KILL.format('SIGKILL')}"
    assert train(3, moment, "--elastic", options=ZERO) == [[*expected, 2]] * 2


def test_lost_gpu_is_replaced(train, single):
    moment = "lose(self.steps, wait=True)"
    assert train(3, moment, "--elastic", "--replace") == [[*single, 3]] * 3


@ranks.needs_mpi
@pytest.mark.slow
def test_lost_gpu_is_replaced_over_mpi(train, single):
    moment = "lose(self.steps, wait=True)"
    flags = ["--elastic", "--replace", *ranks.FLAGS["mpi"]]
    assert train(3, moment, *flags) == [[*single, 3]] * 3


KILL_IN_GRAPH = """
submit, collectives = gpus.StreamGroup._submit, [0]

def submit_or_die(group, name, function, *arguments):
    collectives[0] += group.device.is_replaying
    if collectives[0] == 9 and rank == 1:
        Path("killed").write_text(str(group.device.is_replaying))
        os.kill(os.getpid(), signal.SIGKILL)
    submit(group, name, function, *arguments)

gpus.StreamGroup._submit = submit_or_die
"""


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.one_in(2)
def test_loss_during_a_captured_graph(run_on_gpus, single, tmp_path, processes):
    """All other ranks wait in the same collective of their captured graph."""
    text = GPUS + KILL_IN_GRAPH + script("pass", rows=64, batch=16)
    reports = run_on_gpus(text, processes, flags=["--elastic"])
    assert (tmp_path / "killed").read_text() == "True"
    assert reports == [[*single, processes - 1]] * (processes - 1)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(50))
def test_kills_at_random_moments(train, single, number):
    """The last step of the victim can be after its report."""
    draw = random.Random(number)
    processes, step = draw.randint(2, 4), draw.randint(1, 24)
    victim, delay = draw.randrange(processes), draw.choice([0, draw.random() / 20])
    kill = f"threading.Timer({delay}, lambda: {KILL.format('SIGKILL')}).start()"
    moment = f"if self.steps == {step} and rank == {victim}: {kill}"
    reports = train(processes, moment, "--elastic")
    assert len(reports) in (processes - 1, processes)
    assert all(report[:2] == single for report in reports)
