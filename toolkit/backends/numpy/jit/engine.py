"""From LLVM IR to machine code: the host's features, and compiling.

Compiled objects are kept on disk by the hash of their IR, the CPU and the versions.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from threading import local
from typing import Any

from toolkit import settings
from toolkit.backends import disk_cache
from toolkit.console.progress import Stage, stage

# Changes whenever the meaning of what is cached does.
FORMAT = "3"
# Peeled kernels compile several times faster without it, and run no slower.
FLAGS = ("-disable-lsr",)
SETTINGS = {
    "opt": 2,
    "reloc": "pic",
    # The large model reaches constants through one offset table, which comes out wrong
    # where several objects are linked at once.
    "codemodel": "small",
}


class Host:
    """The processor that code is generated for."""

    def __init__(self) -> None:
        import llvmlite
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
        for flag in FLAGS:
            llvm.set_option("", flag)
        self.llvm = llvm
        self.cpu: Any = llvm.get_host_cpu_name()
        features = llvm.get_host_cpu_features()
        self.features: Any = features.flatten()
        self.version: str = f"{llvmlite.__version__} {llvm.llvm_version_info}"
        self.triple: Any = llvm.get_default_triple()
        self.lanes = 16 if features.get("avx512f") else 8 if features.get("avx2") else 4

    @property
    def facts(self) -> tuple[str, ...]:
        """Whatever changes these makes other machine code of the same text."""
        flags = repr((FLAGS, sorted(SETTINGS.items())))
        target = self.triple, self.cpu, self.features
        return (FORMAT, self.version, *target, flags)

    @cached_property
    def digest(self) -> str:
        """A hash of the facts."""
        return hashlib.sha256("\0".join(self.facts).encode()).hexdigest()

    def machine(self) -> Any:
        """A new generator of machine code; one thread at a time may use it."""
        target = self.llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, jit=True, **SETTINGS
        )


@lru_cache(maxsize=1)
def host() -> Host:
    """The processor of this machine."""
    return Host()


def machine_code(key: str, text: Callable[[], str]) -> bytes:
    """The object file of a function; see `machine_codes`."""
    return machine_codes({key: text})[0]


def machine_codes(texts: Mapping[str, Callable[[], str]]) -> list[bytes]:
    """The object files of functions, from the disk cache if they are there.

    Args:
        texts: by the function's name, different for everything that differs, what
            returns the LLVM IR; called only if the object is not in the cache.
    """
    folder = cache_folder()
    found = {key: disk_cache.load(folder / key) if folder else None for key in texts}
    new = [key for key, code in found.items() if code is None]
    compiled = _compile_all((texts[key]() for key in new), len(new))
    for key, code in zip(new, compiled, strict=True):
        found[key] = code
        if folder:
            disk_cache.store(folder / key, code)
    if folder and new:
        disk_cache.trim(folder)
    return [code for code in found.values() if code is not None]


def _compile_all(sources: Iterator[str], count: int) -> list[bytes]:
    """The object files of modules; this thread writes the next while others compile."""
    threads = min(count, settings.num_threads())
    with stage("kernels", count) as written:
        told = _told(sources, written)
        if threads < 2:
            return list(map(_compile, told))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(_compile, told))


def _told(sources: Iterator[str], written: Stage) -> Iterator[str]:
    for source in sources:
        yield source
        written.done += 1


class _Own(local):
    """What each thread has for itself."""

    @cached_property
    def machine(self) -> Any:
        """It takes a third of the time of a short function to make one."""
        return host().machine()


_own = _Own()


def _compile(source: str) -> bytes:
    """The object file of a module of LLVM IR, on any thread."""
    llvm = host().llvm
    module = llvm.parse_assembly(source, llvm.create_context())
    module.verify()
    return _emit(_own.machine, module)


def _emit(machine: Any, module: Any) -> bytes:
    """`machine.emit_object(module)` that other threads need not wait for.

    llvmlite lets in one thread at a time. What shares neither a context nor a machine
    needs no such lock, so the one long call goes around it.
    """
    ffi = host().llvm.ffi
    locked = ffi.lib.LLVMPY_TargetMachineEmitToMemory
    emit = getattr(locked, "_cfn", locked)
    with ffi.OutputString() as problem:
        buffer = emit(machine, module, True, problem)
        if not buffer:
            raise RuntimeError(str(problem))
    try:
        size = ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def link(objects: Iterable[bytes], names: Iterable[str]) -> dict[str, int]:
    """Load object files; the addresses of the functions of these names."""
    llvm = host().llvm
    # An engine owns its machine, so each gets one of its own.
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    linked = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for code in objects:
        linked.add_object_file(llvm.ObjectFileRef.from_data(code))
    linked.finalize_object()
    _linked.append(linked)
    return {name: int(linked.get_function_address(name)) for name in names}


# What is loaded stays: programs hold addresses into it.
_linked: list[Any] = []


class Module:
    """Loaded machine code; addresses of its functions by name."""

    def __init__(self, code: bytes) -> None:
        self._names: dict[str, int] = {}
        self._code = code

    def address(self, name: str) -> int:
        """Where a function starts."""
        if name not in self._names:
            self._names.update(link([self._code], [name]))
        return self._names[name]


def compile_module(source: str) -> Module:
    """Machine code for IR text, from the disk cache if it is there."""
    facts = (*host().facts, source)
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    return Module(machine_code(key, lambda: source))


def cache_folder() -> Path | None:
    """The folder of compiled objects; None if caching is off or not safe there."""
    return disk_cache.folder("jit")
