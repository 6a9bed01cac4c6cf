"""Compiling and the disk cache: damage, foreign owners, switching it off."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

pytest.importorskip("llvmlite")

from toolkit.backends import disk_cache
from toolkit.backends.numpy.jit import engine

SOURCE = """
define void @triple(ptr %x) {
  %a = load i64, ptr %x
  %b = mul i64 %a, 3
  store i64 %b, ptr %x
  ret void
}
"""


def triple(module: engine.Module, number: int) -> int:
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(module.address("triple"))
    cell = ctypes.c_int64(number)
    function(ctypes.addressof(cell))
    return cell.value


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "toolkit-jit"


@pytest.fixture
def compilations(monkeypatch):
    count = []
    compile_ = engine._compile
    monkeypatch.setattr(
        engine, "_compile", lambda *arguments: count.append(1) or compile_(*arguments)
    )
    return count


def test_second_compilation_is_loaded_from_the_cache(folder, compilations):
    assert triple(engine.compile_module(SOURCE), 5) == 15
    assert triple(engine.compile_module(SOURCE), 7) == 21
    assert len(compilations) == 1
    assert len(list(folder.glob("[!.]*"))) == 1


@pytest.mark.parametrize(
    "damage", [lambda b: b[:40], lambda b: b"", lambda b: b[:-1] + b"\xff"]
)
def test_corrupt_entry_is_compiled_again(folder, compilations, damage):
    engine.compile_module(SOURCE)
    (entry,) = folder.glob("[!.]*")
    entry.write_bytes(damage(entry.read_bytes()))
    assert triple(engine.compile_module(SOURCE), 5) == 15
    assert len(compilations) == 2
    assert triple(engine.compile_module(SOURCE), 5) == 15
    assert len(compilations) == 2


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o660])
def test_file_writable_by_other_users_is_not_loaded(folder, compilations, mode):
    engine.compile_module(SOURCE)
    (entry,) = folder.glob("[!.]*")
    entry.chmod(mode)
    engine.compile_module(SOURCE)
    assert len(compilations) == 2


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o770, 0o777])
def test_folder_writable_by_other_users_is_no_cache(folder, compilations, mode):
    engine.compile_module(SOURCE)
    for directory in (folder, folder.parent):
        directory.chmod(mode)
        assert engine.cache_folder() is None
        assert triple(engine.compile_module(SOURCE), 5) == 15
        directory.chmod(0o755)
        assert engine.cache_folder() == folder
    assert len(compilations) == 3


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_subfolder_of_another_user_is_not_used(folder, mode):
    path = folder / "plans" / ("0" * 32)
    disk_cache.store(path, b"code")
    assert disk_cache.load(path) == b"code"
    path.parent.chmod(mode)
    assert disk_cache.load(path) is None


def test_file_of_another_user_is_not_loaded(folder, monkeypatch):
    path = folder / ("0" * 32)
    disk_cache.store(path, b"code")
    assert disk_cache.load(path) == b"code"
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert disk_cache.load(path) is None
    assert engine.cache_folder() is None


def test_disabled_cache_writes_nothing(folder, monkeypatch):
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", "off")
    assert triple(engine.compile_module(SOURCE), 5) == 15
    assert not folder.exists()


def test_uncreatable_folder_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert triple(engine.compile_module(SOURCE), 5) == 15


def test_oldest_entries_are_deleted_above_the_limit(folder, monkeypatch):
    monkeypatch.setattr(disk_cache, "CACHE_BYTES", 1)
    engine.compile_module(SOURCE)
    assert list(folder.glob("[!.]*")) == []


def several():
    """Functions of different names and lengths."""
    times = {f"f{k}": "  store i64 0, ptr %x\n" * k for k in range(9)}
    return {
        name: f"define void @{name}(ptr %x) {{\n{body}  ret void\n}}"
        for name, body in times.items()
    }


def test_parallel_compilation_equals_serial_compilation(monkeypatch):
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", "off")
    texts = {name: lambda text=text: text for name, text in several().items()}
    codes = []
    for threads in (1, 3):
        monkeypatch.setattr(engine.settings, "num_threads", lambda count=threads: count)
        codes.append(engine.machine_codes(texts))
    assert codes[0] == codes[1]
    assert len(set(codes[0])) == len(texts)


def test_only_new_functions_are_compiled(folder, compilations):
    texts = {name: lambda text=text: text for name, text in several().items()}
    first = engine.machine_code("f3", texts["f3"])
    assert engine.machine_codes(texts)[3] == first
    assert len(compilations) == len(texts)
    assert engine.machine_codes(texts) == engine.machine_codes(texts)
    assert len(compilations) == len(texts)


def test_invalid_code_is_an_error(monkeypatch):
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", "off")
    texts = {name: lambda text=text: text for name, text in several().items()}
    with pytest.raises(RuntimeError, match="parsing error"):
        engine.machine_codes({**texts, "bad": lambda: "nonsense"})


FRAGMENTED = """
import ctypes, mmap
import numpy as np
import toolkit as tk

x = tk.ops.ones((64, 8))
tk.function(lambda x: tk.ops.exp(x) * 2)(x)  # loads the libraries
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
numbers = [ctypes.c_int] * 3
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *numbers, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
page, distance, count = 4096, 3 << 30, 512
block = libc.mmap(None, count * distance, 0, flags, -1, 0)
assert block and block != ctypes.c_void_p(-1).value
for size in (1 << 24, 1 << 20, 1 << 16, 1 << 14, 1 << 12):
    for _ in range(2000):
        libc.mmap(None, size, 0, flags, -1, 0)
for i in range(count):
    libc.munmap(block + i * distance, page)
for n in range(1, 30):
    f = tk.function(lambda x: tk.ops.exp(x) * n + tk.ops.sin(x) ** n)
    np.testing.assert_allclose(f(x), np.exp(1) * n + np.sin(1) ** n, rtol=1e-5)
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="fills the memory with mmap")
def test_code_loads_into_fragmented_memory():
    """The only free pages are 3 GB apart, further than a relocation of 32 bits."""
    process = subprocess.run(
        [sys.executable, "-c", FRAGMENTED],
        env={**os.environ, "TOOLKIT_CACHE_DIR": "off"},
        capture_output=True,
        text=True,
    )
    assert (process.returncode, process.stdout) == (0, "done\n"), process.stderr[-500:]
