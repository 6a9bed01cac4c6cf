"""Tests of a TensorFlow 2 notebook with a changed import: by section and complete."""

import subprocess
import sys

import pytest

from tests.compat.cells import SECTIONS

IMPORT = "import toolkit.compat.tensorflow as tf\n"


def run(code):
    """Run a program in a separate process."""
    # Keras also warns about `input_shape` of layers.
    filters = ("-W", "ignore:Flatten", "-W", "ignore:Conv2D")
    command = [sys.executable, "-W", "error", *filters, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr[-2000:]
    return process.stdout


@pytest.mark.parametrize("section", SECTIONS)
def test_section_runs_in_a_new_process(section):
    run(IMPORT + SECTIONS[section])


def test_full_page_runs_in_one_process():
    output = run("".join(IMPORT + code for code in SECTIONS.values()))
    assert output.count("Execution time:") == 5
