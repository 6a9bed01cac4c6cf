"""Tests of the target processor of generated code, and of settings that lower it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("llvmlite")

from toolkit.backends.numpy.jit import llvm, processor
from toolkit.backends.numpy.jit.processor import (
    PROCESSORS,
    Processor,
    _baseline_processor,
)
from toolkit.errors import ArgumentError

MAC = "x86_64-apple-darwin23"


@pytest.mark.parametrize("name, lanes", [("x86-64-v2", 4), ("x86-64-v3", 8)])
@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
def test_lower_processor_keeps_the_machine(name, lanes, machine):
    machine = replace(PROCESSORS[machine], triple=MAC, cache_bytes=12345)
    baseline = _baseline_processor(machine, name)
    assert (baseline.triple, baseline.cache_bytes) == (MAC, 12345)
    assert baseline.lanes == lanes and baseline.has_fma == (lanes > 4)
    assert baseline.has("avx2") == (lanes > 4) and not baseline.has("avx512f")


def test_arm_has_two_names():
    machine = replace(PROCESSORS["aarch64"], triple="arm64-apple-darwin24", cpu="m1")
    assert _baseline_processor(machine, "aarch64").cpu == "generic"


@pytest.mark.parametrize(
    "machine, name, message",
    [
        ("x86-64-v2", "x86-64-v3", "does not support x86-64-v3: it lacks avx, avx2"),
        ("x86-64-v4", "aarch64", "TOOLKIT_PROCESSOR.*x86-64-v2"),
        ("aarch64", "x86-64-v2", "TOOLKIT_PROCESSOR.*aarch64"),
    ],
)
def test_unsupported_processor_is_refused(machine, name, message):
    with pytest.raises(ArgumentError, match=message):
        _baseline_processor(PROCESSORS[machine], name)


def test_system_without_feature_detection(monkeypatch):
    def fail():
        raise RuntimeError("failed to get host cpu features.")

    monkeypatch.setattr(llvm.binding(), "get_host_cpu_features", fail)
    monkeypatch.setattr(processor, "_undetected_features", lambda triple: [])
    monkeypatch.delenv("TOOLKIT_PROCESSOR", raising=False)
    host = Processor.host.__wrapped__()
    assert host.lanes == 4 and host.features == ""


class OfArm:
    """C library that reports only dot products, also of bfloat16."""

    class getauxval:
        def __new__(cls, entry):
            return {16: 1 << 20, 26: 1 << 14}[entry.value] | 1

    @staticmethod
    def sysctlbyname(name, value, size, new, new_size):
        assert size._obj.value == 4 and new.value is None and new_size.value == 0
        value._obj.value = 1
        return 0 if name.endswith((b"FEAT_DotProd", b"FEAT_BF16")) else -1


@pytest.mark.parametrize(
    "system, triple, is_told",
    [
        ("linux", "aarch64-unknown-linux-gnu", True),
        ("darwin", "arm64-apple-darwin24", True),
        ("win32", "aarch64-pc-windows-msvc", False),
        ("linux", "armv7-unknown-linux-gnueabihf", False),  # bits mean something else
    ],
)
def test_arm_features_that_llvm_does_not_report(monkeypatch, system, triple, is_told):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: OfArm())
    features = processor._undetected_features(triple)
    assert features == ["+dotprod", "+bf16"] * is_told
    better = replace(PROCESSORS["aarch64"], features=",".join(features))
    assert better.has("dotprod") == better.has_dots == is_told


def test_older_c_library_reports_no_features(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert processor._undetected_features("aarch64-unknown-linux-gnu") == []


PROGRAM = """
import numpy as np
import toolkit
from toolkit.backends.numpy.jit.processor import Processor

f = toolkit.function(lambda x: toolkit.ops.tanh(x) @ toolkit.ops.exp(x))
x = np.linspace(-1, 1, 400, dtype="float32").reshape(20, 20)
assert np.allclose(f(x).numpy(), np.tanh(x) @ np.exp(x), atol=1e-5)
print(Processor.host().cpu, Processor.host().lanes)
"""


@pytest.mark.skipif(
    not Processor.host().architecture == "x86_64", reason="these are x86's"
)
def test_environment_selects_the_processor(tmp_path):
    environment = {**os.environ, "TOOLKIT_PROCESSOR": "x86-64-v2"}
    command = [sys.executable, "-c", PROGRAM]
    completed = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120
    )
    assert completed.stdout.split() == ["x86-64-v2", "4"], completed.stderr
    environment["TOOLKIT_PROCESSOR"] = "x86-64-v9"
    completed = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120
    )
    assert "TOOLKIT_PROCESSOR" in completed.stderr
