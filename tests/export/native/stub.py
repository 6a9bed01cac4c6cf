"""Write a native library in C, to test the tools around generated libraries."""

import hashlib
import shutil
import subprocess

import numpy as np
import pytest

from toolkit.backends.library import Library, LibraryTensor, LibraryWeight, StoredWeight

WEIGHTS = np.array([1, 2, 3], "float32")
DIGEST = hashlib.sha256(WEIGHTS.tobytes()).digest()
INPUTS = [
    LibraryTensor("x", "float32", (-1, 3)),
    LibraryTensor("number", "int32", (-1,)),
]
OUTPUTS = [LibraryTensor("scores/a", "float32", (-1, 3))]

# y = x * weights + number + the number of earlier runs, if there is a state.
SOURCE = """
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {{
    const char *name;
    int32_t dtype, rank;
    const int64_t *shape;
}} tensor;
typedef struct {{
    uint64_t mark;
    const float *weights;
    float runs;
}} space;

static const int64_t shape[] = {{-1, 3}};
static const tensor ins[] = {{{{"x", 11, 2, shape}}, {{"number", 5, 1, shape}}}};
static const tensor outs[] = {{{{"scores/a", 11, 2, shape}}}};
static const int64_t sizes[] = {{1, 8}};
static const uint8_t digest[] = {{{digest}}};
static const float own[] = {{1, 2, 3}};

uint32_t {p}_abi(void) {{ return {abi}; }}
const tensor *{p}_inputs(int32_t *count) {{ *count = 2; return ins; }}
const tensor *{p}_outputs(int32_t *count) {{ *count = 1; return outs; }}
const int64_t *{p}_batches(int32_t *count) {{ *count = 2; return sizes; }}
int32_t {p}_state_count(void) {{ return {states}; }}
size_t {p}_workspace_size(int64_t max_batch) {{
    return max_batch < 0 ? 0 : sizeof(space);
}}
size_t {p}_weights_size(void) {{ return 12; }}
const uint8_t *{p}_weights_sha256(void) {{ return digest; }}
int32_t {p}_init(void *workspace, const void *weights, int64_t max_batch) {{
    space *s = workspace;
    if (!s || max_batch < 0) return 1;
    if (!weights && !{embeds}) return 5;
    s->mark = 42;
    s->weights = weights ? weights : own;
    s->runs = 0;
    return 0;
}}
int32_t {p}_run(void *workspace, int64_t n, const void *const *inputs,
                void *const *outputs) {{
    space *s = workspace;
    if (!s || !inputs || !outputs || n < 0) return 1;
    if (s->mark != 42) return 2;
    if ({states} && n == 0) return 3;
    const float *x = inputs[0];
    const int32_t *number = inputs[1];
    float *y = outputs[0];
    for (int64_t i = 0; i < n; i++)
        if (number[i] < 0 || number[i] > 9) return 4;
    for (int64_t i = 0; i < 3 * n; i++)
        y[i] = x[i] * s->weights[i % 3] + (float)number[i / 3] + s->runs;
    s->runs += {states};
    return 0;
}}
int32_t {p}_reset(void *workspace) {{
    ((space *)workspace)->runs = 0;
    return 0;
}}
int32_t {p}_threads(int32_t count, int32_t spins) {{
    (void)spins;
    return count > 1 ? 6 : 0;
}}
void {p}_stop(void) {{}}
const char *{p}_message(const void *workspace, int32_t status) {{
    (void)workspace;
    return status == 4 ? "number: 10 is out of range" : "no luck";
}}
"""


def compiler():
    """Return the C compiler, or skip the test."""
    compiler_path = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler_path is None:
        pytest.skip("there is no C compiler")
    return compiler_path


def source(prefix="digits", abi=1, states=0, embeds=1):
    digest = ", ".join(map(str, DIGEST))
    return SOURCE.format(p=prefix, abi=abi, states=states, embeds=embeds, digest=digest)


def object_of(folder, text):
    """Return the bytes of the object file of C source."""
    (folder / "stub.c").write_text(text)
    command = [compiler(), "-Wall", "-Wextra", "-Werror", "-fPIC", "-O1", "-c"]
    subprocess.run(
        [*command, "stub.c", "-o", "stub.o"], cwd=folder, check=True, timeout=60
    )
    return (folder / "stub.o").read_bytes()


def library(folder, prefix="digits", states=0, embeds=1):
    """Return the result of the compiler for the stub."""
    return Library(
        prefix=prefix,
        inputs=INPUTS,
        outputs=OUTPUTS,
        code=object_of(folder, source(prefix, states=states, embeds=embeds)),
        triple="x86_64-unknown-linux-gnu",
        weights=[StoredWeight(LibraryWeight("dense/kernel", WEIGHTS), 0, 12)],
        weights_bytes=12,
        weights_sha256=DIGEST,
        batches=[1, 8],
        workspace_bytes={1: 24, 8: 24},
        embeds=bool(embeds),
        has_threads=False,
        has_states=bool(states),
    )


def shared(path, **facts):
    """Compile a stub to a shared library."""
    text = source(**facts)
    (path.parent / "stub.c").write_text(text)
    command = [compiler(), "-shared", "-fPIC", "stub.c", "-o", str(path)]
    subprocess.run(command, cwd=path.parent, check=True, timeout=60)
    return path
