"""Test native libraries on processors that are older than their code."""

import shutil
import subprocess

import pytest

import toolkit
from tests.export.native import stub
from toolkit import layers
from toolkit.backends.library import Status
from toolkit.backends.numpy.jit.processor import Processor

QEMU = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
pytestmark = [
    pytest.mark.skipif(QEMU is None, reason="there is no emulator"),
    pytest.mark.skipif(Processor.host().architecture != "x86_64", reason="for x86"),
]
CALLER = """
#include "k.h"
#include <stdlib.h>
int main(void) { return k_init(malloc(k_workspace_size(0)), NULL, 0); }
"""


@pytest.mark.parametrize(
    "target, emulated, expected",
    [
        (None, "Penryn", Status.UNSUPPORTED_PROCESSOR),
        ("x86-64-v2", "Penryn", Status.UNSUPPORTED_PROCESSOR),
        ("x86-64-v2", "Nehalem", Status.OK),
        ("x86-64-v3", "Nehalem", Status.UNSUPPORTED_PROCESSOR),
        ("x86-64-v3", "Haswell", Status.OK),
        ("x86-64-v4", "Haswell", Status.UNSUPPORTED_PROCESSOR),
        ("x86-64", "Penryn", Status.UNSUPPORTED_PROCESSOR),
        ("x86-64", "Nehalem", Status.OK),
    ],
)
def test_older_processor_is_reported(target, emulated, expected, tmp_path):
    model = toolkit.Sequential([toolkit.Input((8,)), layers.Dense(4)])
    options = {"target": target, "batch": 1, "threads": False, "verbose": False}
    model.export(str(tmp_path / "k.o"), **options)
    (tmp_path / "main.c").write_text(CALLER)
    command = [stub.compiler(), "main.c", "k.o", "-static", "-lm", "-o", "k"]
    subprocess.run(command, cwd=tmp_path, check=True)
    process = subprocess.run([QEMU, "-cpu", emulated, "./k"], cwd=tmp_path)
    assert process.returncode == expected
