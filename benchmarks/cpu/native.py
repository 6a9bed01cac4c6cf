"""Native libraries compared with ONNX Runtime: latency, size, memory, export time.

    python benchmarks/cpu/native.py --peer-python PEERS/bin/python
    python benchmarks/cpu/native.py --only cifar --facts

Latency is the time of one row on one thread. `native` is called through ctypes with
prepared pointers, ONNX Runtime with bound values. ONNX Runtime reads the file of
`Model.export`. `--facts` prints measurements without a peer: bytes in addition to the
weights, required libraries and symbols, and seconds from the start of a C process to
its first result. It also prints memory without weights and workspace, and seconds to
export.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

import harness
import numpy as np

import toolkit
from toolkit import applications, layers
from toolkit.bench import networks

FOLDER = Path(tempfile.gettempdir()) / f"toolkit-native-{os.getuid()}"
TARGETS = ("x86-64-v3", "wasm32")
STARTS = 21


def lstm():
    """Build two LSTM layers over (80, 64), as in a small text classifier."""
    hidden = [layers.LSTM(128, return_sequences=True), layers.LSTM(128)]
    return toolkit.Sequential([toolkit.Input((80, 64)), *hidden, layers.Dense(10)])


MODELS = {
    "mlp": lambda: networks.mnist_mlp(toolkit),
    "cifar": lambda: networks.cifar_cnn(toolkit),
    "lstm": lstm,
    "mobilenet_v2": lambda: applications.MobileNetV2(weights=None),
    "resnet50": lambda: applications.ResNet50(weights=None),
}


def make(case):
    """Return the model, the same in each process, and one row."""
    toolkit.utils.set_random_seed(0)
    model = MODELS[case]()
    generator = np.random.default_rng(0)
    return model, generator.standard_normal((1, *model.input_shape[1:])).astype("f4")


# --- latency --------------------------------------------------------------------------


def native(case):
    """Call the library through ctypes, with the pointers of one row."""
    model, x = make(case)
    path = FOLDER / f"{case}.so"
    model.export(path, batch=1, weights="embed", threads=False, verbose=False)
    loaded = toolkit.load_native(path)
    y = loaded.predict(x)
    run, workspace = loaded._binding._functions["run"], loaded._idle[0]
    inputs = (ctypes.c_void_p * 1)(x.ctypes.data)
    outputs = (ctypes.c_void_p * 1)(y.ctypes.data)
    references = [loaded, x, y, workspace]

    def call():
        assert run(references[3].ctypes.data, 1, inputs, outputs) == 0

    return call


def function(case):
    """Return the compiled model in Python."""
    model, x = make(case)
    compiled = toolkit.function(lambda x: model(x, training=False))
    tensor = toolkit.ops.convert_to_tensor(x)
    return lambda: compiled(tensor)


def onnx_runtime(case):
    """Return ONNX Runtime on the exported file."""
    import onnxruntime

    model, x = make(case)
    path = FOLDER / f"{case}.onnx"
    model.export(path, verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(x)
    binding.bind_ortvalue_input(session.get_inputs()[0].name, value)
    binding.bind_output(session.get_outputs()[0].name)
    return lambda: session.run_with_iobinding(binding)


CANDIDATES = (
    harness.Candidate("native", native),
    harness.Candidate("ONNX Runtime", onnx_runtime, peer=True),
    harness.Candidate("function in Python", function),
)

# --- facts ----------------------------------------------------------------------------

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "{p}.h"

static long resident(void) {{
    long all = 0, own = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &own) != 2) return 0;
    fclose(file);
    return own * 4096;
}}

int main(void) {{
    static float x[{P}_INPUT_0_SIZE], y[{P}_OUTPUT_0_SIZE];
    const void *inputs[] = {{x}};
    void *outputs[] = {{y}};
    void *workspace = malloc({p}_workspace_size(1));
    if ({p}_init(workspace, NULL, 1)) return 1;
    if ({p}_run(workspace, 1, inputs, outputs)) return 2;
    printf("%ld\\n", resident());
    return 0;
}}
"""


def run(*command):
    """Return the output of a command, run in the folder."""
    return subprocess.run(
        command, cwd=FOLDER, check=True, capture_output=True, text=True
    ).stdout


def folder(name):
    """Return a separate folder: headers have the same names in all libraries."""
    (FOLDER / name).mkdir(exist_ok=True)
    return FOLDER / name


def facts(case):
    """Return the measurements of a model, by its name."""
    model, _ = make(case)
    weights = sum(np.asarray(w).nbytes for w in model.weights)
    sizes = {}
    for target in TARGETS:
        ending = "wasm" if target == "wasm32" else "so"
        path = folder(target) / f"{case}.{ending}"
        start = time.perf_counter()
        model.export(path, target=target, weights="embed", verbose=False)
        sizes[f"{target}: export"] = f"{time.perf_counter() - start:.2f} s"
        beyond = path.stat().st_size - weights
        sizes[f"{target}: beyond weights"] = f"{beyond / 1024:.1f} KB"
    undefined = run("nm", "-D", "-u", f"{TARGETS[0]}/{case}.so").split()
    sizes["symbols needed"] = " ".join(s for s in undefined if len(s) > 1)
    static = folder("static")
    (static / "main.c").write_text(MAIN.format(p=case, P=case.upper()))
    archive = static / f"{case}.a"
    model.export(archive, target=TARGETS[0], weights="embed", verbose=False)
    run("cc", "-O2", static / "main.c", archive, "-lpthread", "-o", "main")
    run("sh", "-c", "printf 'int main(void){return 0;}' | cc -x c - -o empty")
    sizes["start to first result"] = f"{1e3 * seconds('main'):.2f} ms"
    sizes["an empty program"] = f"{1e3 * seconds('empty'):.2f} ms"
    header = archive.with_suffix(".h").read_text()
    workspace = int(header.partition("WORKSPACE_SIZE_1 ")[2].split()[0])
    beyond = int(run("./main")) - weights - workspace
    sizes["memory beyond weights and workspace"] = f"{beyond / 2**20:.2f} MB"
    return sizes


def seconds(program):
    """Return the median time of a process."""
    times = []
    for _ in range(STARTS):
        start = time.perf_counter()
        run(f"./{program}")
        times.append(time.perf_counter() - start)
    return median(times)


def main():
    """Print the latencies, or the facts."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    if "--facts" not in sys.argv:
        harness.main(__doc__, tuple(MODELS), CANDIDATES)
        return
    sys.argv.remove("--facts")
    options = harness.parser(__doc__).parse_args()
    rows = {case: facts(case) for case in MODELS if options.only in case}
    for case, row in rows.items():
        print(f"\n{case}")
        for name, value in row.items():
            print(f"  {name:36} {value}")
    harness.save(options.json, rows)


if __name__ == "__main__":
    main()
