"""Native libraries called from C and JavaScript: other processors, sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.backends.jit.libraries import MODELS, blob
from tests.backends.jit.test_native import model_source, numbers
from toolkit.backends.library import Library
from toolkit.core.tensor import backend

HERE = Path(__file__).parent
# The compiler for each processor, and the emulator.
TOOLS = {
    "aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64-static", ()),
    "armv7": ("arm-linux-gnueabihf-gcc", "qemu-arm-static", ()),
    "riscv64": (
        *("riscv64-linux-gnu-gcc", "qemu-riscv64-static"),
        ("-cpu", "rv64,v=true,vlen=128"),
    ),
}
ROWS = 5


def prepared(library: Library, x, folder: Path):
    """The paths of the object, weights, inputs and outputs."""
    paths = [folder / name for name in ("m.o", "weights", "input", "output")]
    contents = library.code, blob(library), x.tobytes()
    for path, content in zip(paths, contents, strict=False):
        path.write_bytes(content)
    return paths


def run_in_c(library, x, folder, compiler, runner=(), flags=(), threads=1, workers=1):
    """Return the output of a C program."""
    code, weights, input_path, output = prepared(library, x, folder)
    program = folder / "caller"
    source = HERE / "caller.c"
    build = [compiler, "-O1", *flags, source, code, "-o", program, "-lpthread", "-lm"]
    subprocess.run(build, check=True)
    row = library.outputs[0].shape[1]
    sizes = [len(x), x[0].nbytes, 4 * row, threads, workers]
    call = [*runner, program, weights, input_path, output, *map(str, sizes)]
    completed = subprocess.run(call, capture_output=True, text=True)
    assert completed.returncode == 0, (completed.returncode, completed.stderr[-3000:])
    return np.fromfile(output, "float32").reshape(len(x), row)


def check_close(y, expected):
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("processor", TOOLS)
def test_other_processors_in_emulation(processor, model, workers, tmp_path):
    compiler, emulator, options = TOOLS[processor]
    if not (shutil.which(compiler) and shutil.which(emulator)):
        pytest.skip(f"no {compiler} or no {emulator}")
    library, x, expected = built(model, processor, threads=workers > 1)
    y = run_in_c(
        library,
        x,
        tmp_path,
        compiler,
        [emulator, *options],
        ["-static"],
        workers=workers,
    )
    check_close(y, expected)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_wasm_in_node(model, tmp_path):
    linker = shutil.which("wasm-ld")
    if linker is None or shutil.which("node") is None:
        pytest.skip("no wasm-ld or no node")
    library, x, expected = built(model, "wasm32")
    code, weights, input_path, output = prepared(library, x, tmp_path)
    module = tmp_path / "m.wasm"
    options = ["--no-entry", "--export=__heap_base", "--gc-sections", "-z"]
    options += ["stack-size=1048576", "--strip-all"]
    subprocess.run([linker, *options, code, "-o", module], check=True)
    assert module.stat().st_size <= 65536
    script = HERE / "wasm_caller.mjs"
    row = library.outputs[0].shape[1]
    call = [
        "node",
        script,
        module,
        weights,
        input_path,
        output,
        str(ROWS),
        str(4 * row),
    ]
    subprocess.run(call, check=True)
    check_close(np.fromfile(output, "float32").reshape(ROWS, row), expected)


def built(model, processor, threads=False):
    """Return a library, inputs, and the predictions of the model."""
    network = MODELS[model]()
    source, shape = model_source(
        model, (1, 4), processor=processor, threads=threads, network=network
    )
    x = numbers(ROWS, shape)
    return (
        backend().generator.build_library(source),
        x,
        np.array(toolkit.function(network)(x)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_sanitized_caller_with_many_threads(model, workers, sanitizer, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }")
    flags = [f"-fsanitize={sanitizer}", "-g"]
    command = [compiler, *flags, probe, "-o", tmp_path / "probe"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"no {sanitizer} sanitizer")
    library, x, expected = built(model, None, threads=workers > 1)
    y = run_in_c(library, x, tmp_path, compiler, (), flags, threads=8, workers=workers)
    check_close(y, expected)
