"""Tests that `import toolkit` is light: heavy modules load at their first use."""

import json
import subprocess
import sys

import pytest
from PIL import Image

HEAVY = {"cupy", "h5py", "hypothesis", "llvmlite", "matplotlib", "ml_dtypes", "tqdm"}
HEAVY |= {"google_crc32c", "zmq"}


def modules_after(code):
    """Return the names in sys.modules of a new process after `code`."""
    report = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", report],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    return set(json.loads(process.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import toolkit",
        "from toolkit.datasets import digits; digits.load_data()",
        "from toolkit import layers, models, ops, optimizers",
    ],
)
def test_import_loads_nothing_heavy(code):
    assert modules_after(code) & HEAVY == set()


def test_import_loads_no_network_or_process_modules():
    """These modules would delay every start, and few scripts use them."""
    modules = modules_after("from toolkit import layers, models, optimizers")
    assert (
        modules & {"urllib.request", "http.client", "ssl", "multiprocessing"} == set()
    )


def test_model_loads_only_its_parts():
    modules = modules_after(
        "import toolkit\n"
        "layers = [toolkit.Input((3,)), toolkit.layers.Dense(2)]\n"
        "toolkit.Sequential(layers).compile('adam', 'mse')"
    )
    for other in (
        "layers.recurrent",
        "reading.hdf5",
        "models.importing",
        "inspection.",
    ):
        assert not [m for m in modules if m.startswith(f"toolkit.{other}")]


def test_fit_on_arrays_loads_no_connections_or_pipelines():
    modules = modules_after(
        "import numpy as np, toolkit\n"
        "layers = [toolkit.Input((3,)), toolkit.layers.Dense(2)]\n"
        "model = toolkit.Sequential(layers)\n"
        "model.compile('adam', 'mse')\n"
        "model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)"
    )
    assert modules & {"socket", "toolkit.comm.jobs", "toolkit.data.dataset"} == set()


FIRST_USE_BY_THREADS = """
import sys, threading
from toolkit import layers, models
sys.setswitchinterval(1e-6)
uses = [
    lambda: layers.Dense, lambda: models.Model, lambda: models.load_model,
    lambda: layers.Bidirectional,
]
start = threading.Barrier(len(uses))
failed = []

def run(use):
    start.wait()
    try:
        use()
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=run, args=(use,)) for use in uses]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
"""


@pytest.mark.parametrize("attempt", range(3))
def test_threads_resolve_lazy_names_concurrently(attempt):
    assert "toolkit.layers.wrappers" in modules_after(FIRST_USE_BY_THREADS)


def test_import_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    assert "toolkit" in modules_after("import toolkit")
    assert list(tmp_path.iterdir()) == []


COMPLETE = {
    "a variable": "tk.Variable(2.0) * 3 - tk.Variable([1.0])[0]",
    "a symbol": "tk.KerasTensor((None, 3)) @ tk.KerasTensor((3, 4))",
    "a tensor": "tk.Tensor(numpy.ones(3)) + 1",
    "a random tensor": "tk.random.uniform((2,)) * 2",
    "windows": "tk.utils.timeseries_dataset_from_array(x, None, 3, batch_size=4)"
    ".map(lambda x: x).shuffle(4).prefetch(1)",
    "windows one by one": "tk.preprocessing.timeseries_dataset_from_array("
    "x, None, 3, batch_size=None).batch(2)",
    "two parts": "tk.utils.split_dataset(x, 0.5)[0].repeat().batch(2)",
    "pictures": "tk.utils.image_dataset_from_directory(folder, labels=None).shuffle(2)",
    "texts": "tk.utils.text_dataset_from_directory(folder, labels=None).unbatch()",
}


@pytest.mark.parametrize("name", COMPLETE)
def test_first_tensor_has_all_methods(name, tmp_path):
    """Check that methods and operators of other modules exist from the start."""
    (tmp_path / "a.txt").write_text("a")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    setup = f"x, folder = numpy.arange(9.0), {str(tmp_path)!r}"
    code = f"import numpy, toolkit as tk; {setup}; {COMPLETE[name]}"
    assert "toolkit" in modules_after(code)
