"""Test that a full disk during a save raises a clear error and keeps the older file."""

import errno
import io
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import toolkit as tk
from tests.faults.formats import small_model
from toolkit.data import Dataset
from toolkit.errors import DatasetError, ToolkitError
from toolkit.models.saving import h5_files

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of files")

SAVES = {
    "model.keras": lambda model, path: model.save(path),
    "model.h5": lambda model, path: model.save(path),
    "model.weights.h5": lambda model, path: model.save_weights(path),
    "model.weights.json": lambda model, path: model.save_weights(
        path, max_shard_size=1e-5
    ),
    "folder": lambda model, path: model.save(path, zipped=False),
}


class limited_files:
    """Limit the size of the files that this process writes."""

    def __init__(self, nbytes):
        self.nbytes = nbytes

    def __enter__(self):
        self.signal = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.nbytes, self.limits[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)
        signal.signal(signal.SIGXFSZ, self.signal)


def contents(folder):
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file()
    }


@pytest.mark.parametrize("nbytes", [0, 100, 2_000, 10_000])
@pytest.mark.parametrize("name", SAVES)
def test_save_that_exceeds_the_disk(name, nbytes, tmp_path):
    model, path = small_model(), tmp_path / name
    SAVES[name](model, path)
    before = contents(tmp_path)
    if max(map(len, before.values())) <= nbytes:
        pytest.skip("the files of this format are smaller")
    for variable in model.trainable_variables:
        variable.assign(variable + 1)
    with limited_files(nbytes), pytest.raises((ToolkitError, OSError)) as caught:
        SAVES[name](model, path)
    assert isinstance(caught.value, ToolkitError), caught.value
    assert contents(tmp_path) == before
    SAVES[name](model, path)  # and the next one works


def test_download_that_exceeds_the_disk(tmp_path):
    (tmp_path / "data").write_bytes(bytes(50_000))
    fetch = {"origin": f"file://{tmp_path}/data", "cache_dir": tmp_path / "cache"}
    with limited_files(10_000), pytest.raises(DatasetError):
        tk.utils.get_file("data", **fetch)
    remaining = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert all(p.suffix == ".lock" for p in remaining), remaining
    path = tk.utils.get_file("data", **fetch)
    assert os.path.getsize(path) == 50_000


def test_data_set_that_exceeds_the_disk(tmp_path):
    dataset = Dataset.from_tensor_slices(np.zeros((100, 100)))
    with limited_files(10_000), pytest.raises((ToolkitError, OSError)) as caught:
        dataset.save(tmp_path / "saved")
    assert "File too large" in str(caught.value)
    assert not contents(tmp_path)
    dataset.save(tmp_path / "saved")
    assert len(list(Dataset.load(tmp_path / "saved"))) == 100


def test_cache_that_exceeds_the_disk(tmp_path):
    dataset = Dataset.from_tensor_slices(np.zeros((100, 100))).filter(lambda x: True)
    cached = dataset.cache(tmp_path / "cache")
    with limited_files(10_000), pytest.raises((ToolkitError, OSError)):
        list(cached)
    assert not contents(tmp_path)
    assert len(list(cached)) == len(list(cached)) == 100


@pytest.mark.parametrize("number", range(3))
def test_failing_write_keeps_the_older_file(number, tmp_path, monkeypatch):
    model, path = small_model(), tmp_path / "model.keras"
    model.save(path)
    before = path.read_bytes()
    calls, real = [0], os.fsync

    def fail(descriptor):
        calls[0] += 1
        if calls[0] == number + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    try:
        model.save(path)
    except ToolkitError:
        assert path.read_bytes() == before or number
    assert tk.saving.load_model(path) is not None


# --- Ctrl-C ---------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
sys.path.insert(0, {root!r})
import toolkit as tk
from tests.faults.formats import small_model

path, delay = sys.argv[1], float(sys.argv[2])
model = small_model()
load = tk.saving.load_model
model.save(path); load(path)
count = 0
timer = threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    timer.start()
    end = time.monotonic() + 5  # Python drops an interrupt inside of a finalizer
    while time.monotonic() < end:
        for variable in model.trainable_variables:
            variable.assign(variable * 0 + count)
        model.save(path)
        found = load(path)
        count += 1
except KeyboardInterrupt:
    pass
values = [np.asarray(v) for v in load(path).trainable_variables]
levels = {{float(x) for v in values for x in v.ravel()}}
assert len(levels) == 1 or count == 0, (levels, count)
print("whole", sorted(os.listdir(os.path.dirname(path))))
"""


@pytest.mark.parametrize("delay", [0.01, 0.02, 0.05, 0.11])
@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.one_in(4)
def test_interrupt_leaves_a_complete_file(name, delay, tmp_path):
    code = textwrap.dedent(INTERRUPTED.format(root=str(ROOT)))
    process = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / name), str(delay)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stdout.startswith("whole"), process.stdout
    assert name in process.stdout


@pytest.mark.parametrize("number", range(0, 100, 20))
def test_interrupt_during_hdf5_is_raised(number, tmp_path, monkeypatch):
    calls, real = [0], h5_files._Disk.write

    def write(self, data):
        calls[0] += 1
        if calls[0] == number + 1:
            signal.raise_signal(signal.SIGINT)
        return real(self, data)

    path = tmp_path / "model.keras"
    model = small_model()
    model.save(path)
    before, handler = path.read_bytes(), signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(h5_files._Disk, "write", write)
    with pytest.raises(KeyboardInterrupt):
        model.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.keras"]
    assert signal.getsignal(signal.SIGINT) is handler
    model.save(path)  # HDF5 is in no bad state


def test_interrupt_during_a_read_in_a_child(tmp_path, monkeypatch):
    from toolkit.reading import hdf5_probe

    class Interrupted(hdf5_probe._Child):
        def request(self, header, content):
            raise KeyboardInterrupt

    monkeypatch.setattr(hdf5_probe, "_children", [Interrupted()])
    with pytest.raises(KeyboardInterrupt):
        hdf5_probe.is_safe_to_read(io.BytesIO(b"x"))
    # A request may be incomplete: the next request uses another child.
    assert not hdf5_probe._children
