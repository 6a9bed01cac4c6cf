"""Plans of cuDNN: kept in memory and on disk, and the fastest of them on request."""

import pytest

import toolkit
from toolkit.backends.cupy import cudnn
from toolkit.backends.cupy.signatures import Geometry, convolution
from toolkit.errors import ArgumentError

GEOMETRY = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1))
SHAPES = (2, 8, 4, 4), (16, 8, 3, 3), (2, 16, 4, 4)


class Graph:
    """What the frontend's graph does with plans, of which it has four."""

    refused = 1

    def __init__(self, **where):
        self.index = 0

    def get_execution_plan_count(self):
        return 4

    def build_plan_at_index(self, index):
        if index == self.refused:
            raise RuntimeError("Deselecting execution plan")
        self.index = index

    def get_workspace_size(self):
        return 100 * self.index

    def serialize(self):
        return [self.index]

    def deserialize(self, content):
        # The real binding refuses bytes.
        if isinstance(content, bytes) or len(content) != 1:
            raise RuntimeError("Unable to cast Python instance")
        (self.index,) = content


class Frontend:
    """The functions of the frontend that plans ask for."""

    pygraph = Graph

    def create_handle(self):
        return object()

    def set_stream(self, handle, stream):
        pass


@pytest.fixture
def made(monkeypatch):
    """Every graph that was planned."""
    found = []

    def plan(signature, where, workspace=None):
        found.append(Graph())
        return found[-1]

    monkeypatch.setattr(cudnn, "frontend", Frontend)
    monkeypatch.setattr(cudnn, "version", lambda: 91900)
    monkeypatch.setattr(cudnn, "plan", plan)
    return found


def signature(dtype="float32"):
    return convolution("conv_fprop", SHAPES, GEOMETRY, dtype, "strict")


def test_plans_are_kept_in_memory_and_on_disk(made, tmp_path):
    plans = cudnn.Plans("GPU 90", 0, tmp_path)
    assert plans.get(signature()) is plans.get(signature())
    assert plans.get(signature("bfloat16")) is not plans.get(signature(), 50)
    assert len(made) == 3
    again = cudnn.Plans("GPU 90", 0, tmp_path)
    again.get(signature())
    assert len(made) == 3
    # Of another device, or of a file that is none, nothing is read.
    cudnn.Plans("GPU 80", 0, tmp_path).get(signature())
    for path in tmp_path.glob("*90*/*.plan"):
        path.write_bytes(b"damaged")
    for _ in range(2):
        cudnn.Plans("GPU 90", 0, tmp_path).get(signature())
    assert len(made) == 5


def test_the_fastest_plan_is_kept_apart(made, tmp_path):
    seconds, timed = [3.0, 0.0, 1.0, 2.0], []

    def measure(plan):
        timed.append(plan.graph.index)
        return seconds[plan.graph.index]

    arguments = signature(), None, measure
    plans = cudnn.Plans("GPU", 0, tmp_path)
    best = plans.tune(*arguments)
    assert best is plans.tune(*arguments)
    assert (best.graph.index, best.workspace, timed) == (2, 200, [0, 2, 3])
    assert plans.get(signature()).graph.index == 0
    # Later processes take what was found, though another is faster today.
    seconds[2] = 9.0
    assert cudnn.Plans("GPU", 0, tmp_path).tune(*arguments).graph.index == 2
    assert cudnn.Plans("GPU", 0, None).tune(*arguments).graph.index == 3


def test_where_no_plan_can_be_timed_the_expected_one_runs(made, tmp_path):
    def measure(plan):
        raise MemoryError

    plans = cudnn.Plans("GPU", 0, tmp_path)
    assert plans.tune(signature(), None, measure).graph.index == 0
    assert not list(tmp_path.glob("*/*"))


def test_the_setting():
    assert toolkit.config.autotune() is False
    with pytest.raises(ArgumentError, match="expected True or False; received 1"):
        toolkit.config.set_autotune(1)
