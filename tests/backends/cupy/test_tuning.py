"""Plans of cuDNN: kept in memory and on disk, and the fastest of them on request."""

from types import SimpleNamespace

import pytest

import toolkit
from toolkit.backends import disk_cache
from toolkit.backends.cupy import cudnn
from toolkit.backends.cupy.cuda_device import TIMED, CudaDevice
from toolkit.backends.cupy.signatures import Geometry, convolution
from toolkit.errors import ArgumentError

GEOMETRY = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1))
SHAPES = (2, 8, 4, 4), (16, 8, 3, 3), (2, 16, 4, 4)


class Graph:
    """Fake of a graph of the cuDNN frontend with four plans."""

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
    """Fake of the functions of the frontend that plans call."""

    pygraph = Graph

    def create_handle(self):
        return object()

    def set_stream(self, handle, stream):
        pass


@pytest.fixture
def planned_graphs(monkeypatch):
    """Every graph that was planned."""
    graphs = []

    def plan(signature, where, workspace=None, names_all=False):
        graphs.append(Graph())
        return graphs[-1]

    monkeypatch.setattr(cudnn, "frontend", Frontend)
    monkeypatch.setattr(cudnn, "version", lambda: 91900)
    monkeypatch.setattr(cudnn, "plan", plan)
    return graphs


def signature(dtype="float32"):
    return convolution("conv_fprop", SHAPES, GEOMETRY, dtype, "strict")


def test_plans_are_cached_in_memory_and_on_disk(planned_graphs, tmp_path):
    plans = cudnn.Plans("GPU 90", 0, tmp_path)
    assert plans.get(signature()) is plans.get(signature())
    assert plans.get(signature("bfloat16")) is not plans.get(signature(), 50)
    assert len(planned_graphs) == 3
    reloaded = cudnn.Plans("GPU 90", 0, tmp_path)
    reloaded.get(signature())
    assert len(planned_graphs) == 3
    # Of another device, or of a file that is none, nothing is read.
    cudnn.Plans("GPU 80", 0, tmp_path).get(signature())
    for path in tmp_path.glob("*90*/*.plan"):
        disk_cache.store(path, b"damaged")
    for _ in range(2):
        cudnn.Plans("GPU 90", 0, tmp_path).get(signature())
    assert len(planned_graphs) == 5


def test_fastest_plan_is_cached_separately(planned_graphs, tmp_path):
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
    # Later processes use the stored plan, even if another one is faster now.
    seconds[2] = 9.0
    assert cudnn.Plans("GPU", 0, tmp_path).tune(*arguments).graph.index == 2
    assert cudnn.Plans("GPU", 0, None).tune(*arguments).graph.index == 3


def test_expected_plan_runs_if_timing_fails(planned_graphs, tmp_path):
    def measure(plan):
        raise MemoryError

    plans = cudnn.Plans("GPU", 0, tmp_path)
    assert plans.tune(signature(), None, measure).graph.index == 0
    assert not list(tmp_path.glob("*/*"))


class Stream:
    """A stream, or a device, that work is started on."""

    ptr = 7

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


class Event:
    """An event of CuPy, of which the times are said to be 8 ms apart."""

    def __init__(self, **options):
        self.seen = []

    def record(self, stream):
        self.seen.append("record")

    def synchronize(self):
        self.seen.append("synchronize")


class Library:
    """Plans that record the calls of their methods."""

    def get(self, *arguments):
        return lambda *call: ("get", arguments, call)

    def tune(self, *arguments):
        *key, measure = arguments
        assert callable(measure)
        return lambda *call: ("tune", tuple(key), call)


def test_plans_are_created_in_groups_and_cached(planned_graphs, tmp_path):
    plans = cudnn.Plans("GPU 90", 0, tmp_path)
    keys = [(signature(dtype), None) for dtype in ("float32", "float16", "bfloat16")]
    requests = []

    def make(missing):
        requests.append(missing)
        # The second one is not a valid plan, and the third one failed.
        return {missing[0]: bytes([2]), missing[1]: b"no plan"}

    plans.prepare([*keys, keys[0]], make)
    assert requests == [keys]
    assert plans.get(*keys[0]).workspace == 200
    assert not planned_graphs
    assert cudnn.Plans("GPU 90", 0, tmp_path).get(*keys[0]).workspace == 200
    assert not planned_graphs
    for key in keys[1:]:
        assert plans.get(*key).workspace == 0
    assert len(planned_graphs) == 2
    # Known plans are not requested again.
    plans.prepare(keys, lambda missing: requests.append(missing) or {})
    assert requests == [keys, []]
    assert all(map(plans.has, keys))
    assert not cudnn.Plans("GPU 90", 0, None).has(keys[0])


@pytest.fixture
def device():
    """Return a CUDA device that can only request plans."""
    cuda_device = object.__new__(CudaDevice)
    cuda_device.device = cuda_device.stream = Stream()
    cuda_device.empty = lambda shape, dtype: (shape, dtype)
    cuda_device.address = lambda array: 1000 + array[0][0]
    cuda_device.capture = lambda start: start() or start
    cuda = SimpleNamespace(Event=Event, get_elapsed_time=lambda a, b: 8.0)
    cuda_device.cupy = SimpleNamespace(cuda=cuda)
    vars(cuda_device).update(
        _products=Library(), _graphs=Library(), _entry_lock=Stream(), _is_entered=False
    )
    return cuda_device


def test_device_tunes_while_the_setting_is_on(device):
    toolkit.config.set_autotune(True)
    try:
        product, graph = device.product("gemm", (1, 2), 64), device.dnn("graph", None)
    finally:
        toolkit.config.set_autotune(False)
    assert product((3,), 5) == ("tune", ("gemm", (1, 2), 64), ((3,), 5, 7))
    assert graph() == ("tune", ("graph", None), ())
    assert device.product("gemm", (1, 2), 64)((3,), 5)[0] == "get"
    assert device.dnn("graph", None)()[0] == "get"


def test_plans_are_timed_on_separate_memory(device):
    called = []

    def plan(pointers, workspace):
        called.append((pointers, workspace))

    plan.signature, plan.workspace = signature(), 0
    # The image, the filters and the result in float32; and some scratch memory.
    sizes = [1024, 4608, 2048]
    assert plan.signature.sizes == sizes
    assert device._graph_seconds(plan) == pytest.approx(8e-3 / TIMED)
    assert set(called) == {(tuple(1000 + n for n in sizes), 1001)}
    assert len(called) > TIMED


def test_tuning_setting():
    assert toolkit.config.autotune() is False
    with pytest.raises(ArgumentError, match="expected True or False; received 1"):
        toolkit.config.set_autotune(1)
