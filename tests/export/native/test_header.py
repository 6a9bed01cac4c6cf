"""Test the C header: its text is stable, and C and C++ compile it and its example."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.native import stub
from toolkit.backends.library import DTYPES, LibraryTensor, Status
from toolkit.export.native.header import (
    MARK,
    HeaderData,
    header_text,
    libraries_of_header,
)
from toolkit.export.native.weights import write_weights

GOLDEN = Path(__file__).with_name("golden.h")
NAMING = HeaderData("1.2.3", ["digits.so"], "x86-64-v3")


def usage(text):
    """Return the program in the first comment."""
    lines = re.search(r"\n \* Use:\n \*\n(.*?)\n \*/", text, re.DOTALL)[1].split("\n")
    return "\n".join(line[7:] for line in lines) + "\n"


def run(*command, folder):
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_header_equals_the_golden_file(tmp_path):
    assert header_text(stub.library(tmp_path), NAMING) == GOLDEN.read_text("utf-8")
    assert GOLDEN.read_text("utf-8").startswith(MARK)


@pytest.mark.parametrize("name", ["a b.so", 'q".so', "ä\\.o", "new\nline.a", "*.so"])
def test_header_names_its_library(tmp_path, name):
    text = header_text(stub.library(tmp_path), replace(NAMING, files=["b.o", name]))
    assert libraries_of_header(text) == ["b.o", name]
    line = text.partition("\n")[0]
    assert line.isascii() and line.count("*/") == 1
    assert line.endswith("x86_64-unknown-linux-gnu. Do not edit. */")


def test_older_headers_name_no_library():
    assert libraries_of_header(f"{MARK}1.2.3. Do not edit. */") == []


STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only")


@pytest.mark.parametrize(
    "compiler, language, standard",
    [
        ("cc", "c", "c99"),
        ("cc", "c", "c17"),
        ("clang", "c", "c99"),
        ("g++", "c++", "c++98"),
        ("g++", "c++", "c++20"),
        ("clang++", "c++", "c++11"),
    ],
)
def test_header_compiles(compiler, language, standard, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    strict = STRICT if standard != "c++98" else (*STRICT, "-Wno-long-long")
    (tmp_path / "digits.h").write_text(GOLDEN.read_text("utf-8"))
    (tmp_path / "twice.c").write_text('#include "digits.h"\n#include "digits.h"\n')
    command = compiler, "-x", language, f"-std={standard}", *strict, "twice.c"
    run(*command, folder=tmp_path)


@pytest.mark.parametrize("embeds", [1, 0])
def test_example_of_the_header_runs(embeds, tmp_path):
    compiler = stub.compiler()
    library = stub.library(tmp_path, embeds=embeds)
    file = None if embeds else "digits.safetensors"
    text = header_text(library, replace(NAMING, weights_file=file))
    (tmp_path / "digits.h").write_text(text)
    (tmp_path / "digits.o").write_bytes(library.code)
    (tmp_path / "main.c").write_text(usage(text))
    if file:
        write_weights(tmp_path / file, library)
    standard = "-std=c99" if embeds else "-std=gnu11"
    strict = ["-Wall", "-Wextra", "-Werror", standard]
    run(compiler, *strict, "main.c", "digits.o", "-o", "main", folder=tmp_path)
    run("./main", folder=tmp_path)


def test_macros_equal_the_functions(tmp_path):
    compiler = stub.compiler()
    library = stub.library(tmp_path, prefix="Ab_1")
    (tmp_path / "ab.h").write_text(header_text(library, NAMING))
    (tmp_path / "ab.o").write_bytes(library.code)
    (tmp_path / "main.c").write_text(
        '#include "ab.h"\n#include <stdio.h>\n#include <string.h>\n'
        "int main(void) {\n"
        "    int32_t count;\n"
        "    const int64_t sizes[] = AB_1_BATCHES, shape[] = AB_1_INPUT_0_SHAPE;\n"
        "    const Ab_1_tensor *x = Ab_1_inputs(&count);\n"
        "    int same = count == AB_1_INPUT_COUNT && Ab_1_abi() == AB_1_ABI\n"
        "        && x->rank == AB_1_INPUT_0_RANK && x->dtype == AB_1_FLOAT32\n"
        "        && x->dtype == AB_1_INPUT_0_DTYPE\n"
        "        && !memcmp(x->shape, shape, sizeof shape)\n"
        "        && !strcmp(x->name, AB_1_INPUT_0_NAME)\n"
        "        && Ab_1_workspace_size(0) == AB_1_WORKSPACE_SIZE\n"
        "        && Ab_1_weights_size() == AB_1_WEIGHTS_SIZE\n"
        "        && !memcmp(Ab_1_batches(&count), sizes, sizeof sizes)\n"
        "        && count == AB_1_BATCH_COUNT;\n"
        "    for (int i = 0; i < 32; i++) {\n"
        "        unsigned byte;\n"
        '        sscanf(AB_1_WEIGHTS_SHA256 + 2 * i, "%2x", &byte);\n'
        "        same = same && byte == Ab_1_weights_sha256()[i];\n"
        "    }\n"
        "    return !same;\n"
        "}\n"
    )
    run(compiler, "-Wall", "main.c", "ab.o", "-o", "main", folder=tmp_path)
    run("./main", folder=tmp_path)


@pytest.mark.parametrize(
    "name", ['a"b\\', "*/ int x; /*", "über\n", "a\\\nb", "??/", "//", ""]
)
def test_names_are_escaped(name, tmp_path):
    compiler = stub.compiler()
    library = stub.library(tmp_path)
    tensors = [LibraryTensor(name, dtype, (-1, 2)) for dtype in DTYPES]
    text = header_text(replace(library, inputs=tensors, outputs=tensors), NAMING)
    (tmp_path / "digits.h").write_text(text)
    (tmp_path / "main.c").write_text(
        '#include "digits.h"\n#include <stdio.h>\n'
        "int main(void) { fputs(DIGITS_INPUT_0_NAME, stdout); return 0; }\n"
    )
    strict = "-Wall", "-Werror", "-std=c99"
    run(compiler, *strict, "main.c", "-o", "main", folder=tmp_path)
    process = subprocess.run(["./main"], cwd=tmp_path, capture_output=True)
    assert process.stdout == name.encode()


def test_header_names_every_status_and_dtype():
    text = GOLDEN.read_text("utf-8")
    for status in Status:
        assert f"DIGITS_{status.name} = {int(status)}" in text
    for number, dtype in enumerate(DTYPES):
        assert re.search(rf"DIGITS_{dtype.upper()} = {number}\b", text)
