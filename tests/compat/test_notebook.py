"""A TensorFlow 2 notebook with only its import changed: by sections and as a whole."""

import subprocess
import sys

import pytest

from tests.compat.cells import SECTIONS

IMPORT = "import toolkit.compat.tensorflow as tf\n"


def run(code):
    """Run a program in a process of its own."""
    # Keras warns, too, that layers are given an `input_shape`.
    told = ("-W", "ignore:Flatten", "-W", "ignore:Conv2D")
    command = [sys.executable, "-W", "error", *told, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_runs_in_a_fresh_process(section):
    run(IMPORT + SECTIONS[section])


def test_the_whole_page_runs_in_one_process():
    output = run("".join(IMPORT + code for code in SECTIONS.values()))
    assert output.count("Execution time:") == 5
