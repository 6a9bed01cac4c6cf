"""Tests that simulate features that other systems lack or do differently."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import toolkit

PACKAGE = Path(toolkit.__file__).parent
# Names that macOS or Windows lacks; the second row are flags of `os.open`.
MISSING = (
    *("memfd_create", "sched_getaffinity", "fork", "register_at_fork", "getuid"),
    *("O_NOFOLLOW", "O_NONBLOCK"),
    *("pread", "pwrite", "sysconf", "geteuid"),
)
MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
PROGRAM = f"""
import os
import sys

for name in {MISSING!r}:
    delattr(os, name)
os.supports_fd = set()
for name in {MODULES!r}:
    sys.modules[name] = None

import numpy as np
import toolkit
from toolkit import layers
from toolkit.data import Dataset


def double(x):
    return 2 * np.broadcast_to(x, (5000,))


class Batches(toolkit.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.ones((8, 8), "float32"), np.full((8, 1), 0.5, "float32")


def main():
    assert toolkit.__file__.startswith(sys.argv[1])
    found = Dataset.range(6).map(double, workers="process")
    assert [int(x[0]) for x in found] == [0, 2, 4, 6, 8, 10]
    model = toolkit.Sequential([toolkit.Input((8,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    batches = Batches(workers=2, use_multiprocessing=True)
    losses = model.fit(batches, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save("m.keras")
    again = toolkit.saving.load_model("m.keras")
    x = np.ones((2, 8), "float32")
    assert (again(x).numpy() == model(x).numpy()).all()
    toolkit.distribution.Checkpoint(model).save("state")
    toolkit.distribution.Checkpoint(model).restore("state")
    model.export("m.o", verbose=False)
    assert os.path.isdir("cache/toolkit-jit")


if __name__ == "__main__":
    main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it takes away what Linux has")
def test_package_works_with_crlf_and_without_linux_features(tmp_path):
    pytest.importorskip("llvmlite")
    root = tmp_path / "root"
    shutil.copytree(PACKAGE, root / "toolkit")  # with the bytecode
    texts = [p for p in (root / "toolkit").rglob("*.*") if p.suffix in (".ll", ".txt")]
    assert len(texts) > 5
    for path in texts:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), *sys.path]),
        "TOOLKIT_CACHE_DIR": "cache",
        "TOOLKIT_NUM_THREADS": "2",
    }
    subprocess.run(
        [sys.executable, "program.py", str(root)],
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=120,
    )
