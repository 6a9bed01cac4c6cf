"""Read registers, spills and shared memory of kernels from NVRTC's assembler."""

import re
from dataclasses import dataclass

import pytest

from toolkit.backends.cupy import nvrtc

needs_nvrtc = pytest.mark.skipif(
    nvrtc.library() is None, reason="NVRTC is not installed (group gpu-compile)"
)
ARCHITECTURES = (80, 90)
# Kernels that are compiled together: to read the prelude takes longer than each.
TOGETHER = 60
# Static shared memory of a block, everywhere.
MOST_SHARED = 48 << 10
_FUNCTION = re.compile(
    r"Compiling entry function '(\w+)'.*\n.*Function properties.*\n"
    r".*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
    r".*Used (\d+) registers(.*)"
)
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Use:
    """Resources of a kernel: registers of a thread, and bytes of memory."""

    registers: int
    spilled: int
    shared: int


def assembled(kernels, arch):
    """Return the resources of each kernel for an architecture, by its name."""
    kernels, resources = list(kernels), {}
    for start in range(0, len(kernels), TOGETHER):
        batch = kernels[start : start + TOGETHER]
        source = "\n".join(kernel.source for kernel in batch)
        options = ("--ptxas-options=-v",)
        cubin, log = nvrtc.compile_source(source, "batch", arch, options)
        assert cubin.startswith(b"\x7fELF")
        for name, _, stores, loads, registers, suffix in _FUNCTION.findall(log):
            shared = _SHARED.search(suffix)
            resources[name] = Use(
                int(registers),
                int(stores) + int(loads),
                int(shared[1]) if shared else 0,
            )
    assert resources.keys() == {kernel.name for kernel in kernels}
    return resources


def check(kernels, arch, record=None):
    """Compile kernels; none may keep registers in memory, or share too much.

    Args:
        kernels: of any names.
        arch: 90 for sm_90.
        record: pytest's `record_property`, which gets the most registers of a family.
    """
    used = assembled(kernels, arch)
    spilling = {name: use for name, use in used.items() if use.spilled}
    assert not spilling, spilling
    large = {name: use for name, use in used.items() if use.shared > MOST_SHARED}
    assert not large, large
    if record is not None:
        families = {}
        for name, use in used.items():
            family = name.rpartition("_")[0]
            families[family] = max(use.registers, families.get(family, 0))
        record(f"registers, sm_{arch}", families)
