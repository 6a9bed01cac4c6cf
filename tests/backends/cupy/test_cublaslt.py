"""Tests of the calls of cuBLASLt against the headers of its wheel and the library."""

import ctypes
import re
from functools import cache

import pytest

from toolkit.backends.cupy import algorithms, cublaslt, libraries
from toolkit.backends.cupy.cublaslt import Gemm, Product

WIDTHS = {"int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8, "float": 4}
# The ctypes type of an argument of C, by the end of its type or by its name.
KINDS = {"size_t": ctypes.c_size_t, "uint64_t": ctypes.c_uint64}
KINDS |= {"int64_t": ctypes.c_int64, "int": ctypes.c_int}
ENUMS = {"cublasComputeType_t", "cudaDataType_t", "cudaDataType"}


@cache
def header(name):
    for folder in libraries.folders():
        for path in (folder / name, folder.parent / "include" / name):
            if path.is_file():
                return path.read_text()
    pytest.skip(f"no wheel with {name} is installed (group cudnn-plans)")
    return ""


@cache
def constants(name):
    """Return the enumerators of a header, each with the comment before it."""
    comment = r"(/\*(?:(?!\*/).)*\*/\s*)?"
    pattern = comment + r"^\s*(CU[A-Z]+_\w+)\s*=\s*([^,\n/]+),?"
    values, comments = {}, {}
    for comment, key, text in re.findall(pattern, header(name), re.M | re.S):
        words = {n: str(values.get(n, 0)) for n in re.findall(r"CU\w+", text)}
        for word, value in words.items():
            text = re.sub(rf"\b{word}\b", value, text)
        if re.fullmatch(r"[\s\d()|<ulxULa-fA-F-]+", text):
            values[key] = eval(re.sub(r"(?<=\d)[ulUL]+", "", text), {})
            comments[key] = comment
    return values, comments


def test_constants_equal_the_header():
    values, _ = constants("cublasLt.h")
    for name, number in cublaslt.EPILOGUES.items():
        assert values[f"CUBLASLT_EPILOGUE_{name.upper()}"] == number
    kinds, _ = constants("library_types.h")
    names = {"float": "R_{}F", "bfloat": "R_{}BF", "int": "R_{}I"}
    for dtype, number in cublaslt.DATA_TYPES.items():
        word, bits = re.fullmatch(r"([a-z]+)(\d+)", dtype).groups()
        assert kinds["CUDA_" + names[word].format(bits)] == number
    computes, _ = constants("cublas_api.h")
    for name, number in cublaslt.COMPUTE_TYPES.items():
        assert computes[f"CUBLAS_COMPUTE_{name}"] == number
        assert kinds[f"CUDA_R_{name[:3]}"] == cublaslt.SCALE_TYPES[name]
    assert computes["CUBLAS_OP_N"] == 0
    assert computes["CUBLAS_OP_T"] == 1
    scheme = "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE"
    assert values[scheme] == cublaslt.IN_COMPUTE_TYPE


ATTRIBUTES = {
    "transpose_a": "MATMUL_DESC_TRANSA",
    "transpose_b": "MATMUL_DESC_TRANSB",
    "epilogue": "MATMUL_DESC_EPILOGUE",
    "bias": "MATMUL_DESC_BIAS_POINTER",
    "aux": "MATMUL_DESC_EPILOGUE_AUX_POINTER",
    "aux_leading": "MATMUL_DESC_EPILOGUE_AUX_LD",
    "bias_type": "MATMUL_DESC_BIAS_DATA_TYPE",
    "type": "MATRIX_LAYOUT_TYPE",
    "rows": "MATRIX_LAYOUT_ROWS",
    "columns": "MATRIX_LAYOUT_COLS",
    "leading": "MATRIX_LAYOUT_LD",
    "batch": "MATRIX_LAYOUT_BATCH_COUNT",
    "stride": "MATRIX_LAYOUT_STRIDED_BATCH_OFFSET",
    "workspace": "MATMUL_PREF_MAX_WORKSPACE_BYTES",
    "reductions": "MATMUL_PREF_REDUCTION_SCHEME_MASK",
    **{f"align_{x}": f"MATMUL_PREF_MIN_ALIGNMENT_{x.upper()}_BYTES" for x in "abcd"},
}


def test_attributes_equal_the_header():
    values, comments = constants("cublasLt.h")
    tables = cublaslt.DESCRIPTOR, cublaslt.LAYOUT, cublaslt.PREFERENCE
    names_checked = set()
    for name, (number, kind) in (row for table in tables for row in table.items()):
        key = f"CUBLASLT_{ATTRIBUTES[name]}"
        assert values[key] == number
        word = re.findall(r"\b(u?int\d+_t|void \*|float)(?=[,;\s])", comments[key])[-1]
        assert ctypes.sizeof(kind) == WIDTHS.get(word, 8), (name, word)
        names_checked.add(name)
    assert names_checked == set(ATTRIBUTES)


def argument_kind(text):
    """How a C argument is passed by ctypes."""
    words = text.replace("const ", "").split()
    handle = words[0].startswith(("cublasLt", "cudaStream")) and words[0].endswith("_t")
    if "*" in text or "[]" in text or handle:
        return ctypes.c_void_p
    return ctypes.c_int if words[0] in ENUMS else KINDS[words[0]]


def test_signatures_equal_the_header():
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header("cublasLt.h"), flags=re.S)
    for name, kinds in cublaslt._SIGNATURES.items():
        match = re.search(rf"WINAPI cublasLt{name}\(([^)]*)\);", text)
        arguments = [a.strip() for a in match[1].split(",")]
        expected = [
            # Numbers of attributes are of enumerated types.
            ctypes.c_int if re.search(r"_?Attributes?_t ", a) else argument_kind(a)
            for a in arguments
        ]
        assert list(kinds) == expected, name
    layout = re.search(r"uint64_t data\[(\d+)\];\s*} cublasLtMatmulAlgo_t;", text)
    result = algorithms.Algorithm
    assert result.algorithm.size == 8 * int(layout[1])
    fields = re.search(r"struct \{([^}]*)\} cublasLtMatmulHeuristicResult_t;", text)[1]
    named = re.findall(r"(\w+) (\w+)(?:\[(\d+)\])?;", fields)
    sizes = {"cublasLtMatmulAlgo_t": 64, "size_t": 8, "cublasStatus_t": 4}
    widths = [(sizes | {"float": 4, "int": 4})[t] * int(n or 1) for t, _, n in named]
    assert [getattr(result, n).size for n, _ in result._fields_] == widths


GEMMS = [
    Gemm(8, 4, 16, (False, True), (8, 4, 8), ("float32", "float32"), "32F"),
    Gemm(
        *(24, 6, 8, (True, False), (8, 8, 24), ("bfloat16", "float32"), "32F"),
        epilogue="relu_bias",
        batch=3,
        strides=(0, 48, 144),
        alpha=0.5,
        beta=1.0,
    ),
    Gemm(
        *(256, 6, 8, (True, False), (8, 8, 256), ("float16", "float16"), "32F"),
        epilogue="drelu_bgrad",
        aux_leading=256,
    ),
    Gemm(*(5, 6, 7, (True, True), (7, 6, 5), ("float64", "float64"), "64F")),
]


@pytest.mark.parametrize("gemm", GEMMS, ids=lambda g: f"{g.dtypes[0]} {g.epilogue}")
def test_library_stores_descriptor_attributes(gemm):
    if libraries.path_of("cublasLt") is None:
        pytest.skip(f"{libraries.WHEELS['cublasLt']} is not installed")
    product = Product(gemm)
    assert product.attributes() == (gemm.descriptor, gemm.layouts)
    # Vectors have addresses; c has none in the descriptor.
    vectors = [name for name in gemm.extras if name != "c"]
    for i, name in enumerate(vectors):
        product.descriptor.set(cublaslt.DESCRIPTOR, **{name: 4096 * (i + 1)})
        assert product.descriptor.get(cublaslt.DESCRIPTOR, name) == 4096 * (i + 1)


def test_epilogue_operands_have_a_layout():
    extras = [gemm.extras for gemm in GEMMS]
    assert extras == [[], ["c", "bias"], ["bias", "aux"], []]
