"""Test a native library in C, C++, Rust, Go and JavaScript, and with sanitizers."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "native"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="examples are in checkouts only"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("callers", FOLDER / "callers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built(example, tmp_path_factory):
    """Return a folder with the library and the callers, and the images' classes."""
    folder = tmp_path_factory.mktemp("callers")
    model, images = example.train(3)
    example.export(model, images, folder)
    shutil.copy(ROOT / "tests" / "export" / "native" / "guards.c", folder)
    return folder, model.predict(images, verbose=0).argmax(-1)


@pytest.mark.parametrize("language", ["c", "c++", "rust", "go", "javascript"])
def test_caller(example, built, language):
    folder, expected = built
    output = example.call(language, folder)
    if output is None:
        pytest.skip("its tools are not installed")
    np.testing.assert_array_equal(output, expected)


def test_every_caller_has_a_test(example):
    endings = {path.suffix for path in FOLDER.glob("caller.*")}
    assert endings == {".c", ".cpp", ".rs", ".go", ".mjs"}
    assert list(example.CALLERS) == ["c", "c++", "rust", "go", "javascript"]


def run(folder, *command):
    process = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert not process.stderr, process.stderr
    return process.stdout


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize("threads", [[], ["2"]])
def test_eight_threads_with_eight_workspaces(built, sanitizer, threads):
    folder, _ = built
    name = f"threads-{sanitizer}"
    flags = ["-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-fsanitize={sanitizer}"]
    compiled = subprocess.run(
        ["cc", *flags, "threads.c", "libdigits.a", "-lpthread", "-o", name], cwd=folder
    )
    if compiled.returncode:
        pytest.skip("the compiler has no sanitizers")
    printed = run(folder, f"./{name}", "images.f32", *threads)
    assert printed == "8 of 8 threads computed the same bits\n"


def test_library_accesses_only_its_memory(built):
    folder, _ = built
    run(folder, "cc", "-O1", "guards.c", "libdigits.a", "-lpthread", "-o", "guards")
    for count in ("1", "4", "20", "300"):
        assert run(folder, "./guards", count) == "inside\n"
