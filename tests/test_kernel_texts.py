"""Tests of the script that compares kernels: which kernels are equal."""

from pathlib import Path
from runpy import run_path

import pytest

SCRIPT = run_path(str(Path(__file__).resolve().parents[1] / "scripts/kernel_texts"))
KERNEL = """\
define void @f{function}(ptr noalias %table, i64 %lo) #0 {{
entry:
  br label %{head}
{head}:
  %{index} = phi i64 [ %lo, %entry ], [ %{following}, %{head} ]
  %{following} = add nsw i64 %{index}, {step}
  br label %{head}
}}"""
NAMES = {
    "function": "0" * 40,
    "head": "head1",
    "index": "i4",
    "following": "i5",
    "step": 1,
}


def kernel(**names):
    return SCRIPT["normalized"](KERNEL.format(**NAMES | names))


@pytest.mark.parametrize(
    "names",
    [
        {"function": "a" * 40},
        {"head": "loop7"},
        {"index": "v9", "following": "v10"},
        {"index": "i5", "following": "i4"},
    ],
)
def test_names_of_functions_blocks_and_values_are_ignored(names):
    assert kernel(**names) == kernel()


@pytest.mark.parametrize("names", [{"step": 2}, {"following": "i4"}, {"head": "entry"}])
def test_different_numbers_values_or_blocks_differ(names):
    assert kernel(**names) != kernel()


def test_intrinsics_and_types_keep_their_names():
    text = "declare i64 @llvm.smin.i64(i64, i64)\n%v1 = call i64 @llvm.smin.i64(%v2)"
    expected = text.replace("%v1", "%n0").replace("%v2", "%n1") + "\n"
    assert SCRIPT["normalized"](text) == expected


def test_file_locations_are_ignored():
    old = {"a": "add", "b": "sub", "c": "mul"}
    new = {"a": "sub", "b": "add", "c": "shl", "d": "mul"}
    assert SCRIPT["differing"](old, new) == (3, {}, {"c": "shl"})
    assert SCRIPT["differing"](new, old) == (3, {"c": "shl"}, {})
    assert SCRIPT["differing"]({"a": "add"}, {"a": "sub"}) == (
        0,
        {"a": "add"},
        {"a": "sub"},
    )
