"""Compilation of LLVM IR to machine code, and loading of machine code.

The disk cache stores compiled objects by a hash of their IR, the CPU and the versions.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import local
from typing import Any

from toolkit import settings
from toolkit.backends import disk_cache
from toolkit.backends.numpy.jit import llvm
from toolkit.backends.numpy.jit.processor import Processor, current
from toolkit.console.progress import Stage, stage
from toolkit.processes.threads import map_in_threads

# The version of the cache; increase it if the meaning of cached data changes.
FORMAT = "4"
SETTINGS = {
    "opt": 2,
    "reloc": "pic",
    # The large model addresses constants through one offset table. The table is wrong
    # if several objects are linked at once.
    "codemodel": "small",
}


def facts(processor: Processor) -> tuple[str, ...]:
    """Return the facts that determine the machine code, apart from the text."""
    flags = repr((llvm.FLAGS, sorted(SETTINGS.items())))
    return (FORMAT, llvm.version(), repr(processor), flags)


def digest(processor: Processor) -> str:
    """Return a hash of the facts."""
    return hashlib.sha256("\0".join(facts(processor)).encode()).hexdigest()


def machine(processor: Processor) -> Any:
    """Return a new LLVM target machine for the host; it is not thread-safe."""
    target = llvm.binding().Target.from_default_triple()
    return target.create_target_machine(
        cpu=processor.cpu, features=processor.features, jit=True, **SETTINGS
    )


def machine_code(key: str, text: Callable[[], str]) -> bytes:
    """Return the object file of a function; see `machine_codes`."""
    return machine_codes({key: text})[0]


def machine_codes(
    texts: Mapping[str, Callable[[], str]], processor: Processor | None = None
) -> list[bytes]:
    """Return the object files of functions, from the disk cache if possible.

    Args:
        texts: functions that return LLVM IR, by unique function name. A function is
            called only if its object is not in the cache.
        processor: the target, which the host must support; None: the host.
    """
    processor = processor or Processor.host()
    folder = cache_folder()
    codes = {key: disk_cache.load(folder / key) if folder else None for key in texts}
    new = [key for key, code in codes.items() if code is None]
    compiled = _compile_all((texts[key]() for key in new), len(new), processor)
    for key, code in zip(new, compiled, strict=True):
        codes[key] = code
        if folder:
            disk_cache.store(folder / key, code)
    if folder and new:
        disk_cache.trim_periodically(folder)
    return [code for code in codes.values() if code is not None]


def _compile_all(
    sources: Iterator[str], count: int, processor: Processor
) -> list[bytes]:
    """Compile modules in parallel, while this thread generates the next text."""
    threads = min(count, settings.num_threads())
    with stage("kernels", count) as progress:
        texts = _report_progress(sources, progress)
        if threads < 2:
            return [_compile(text, processor) for text in texts]
        return map_in_threads(lambda text: _compile(text, processor), texts, threads)


def _report_progress(sources: Iterator[str], progress: Stage) -> Iterator[str]:
    for source in sources:
        yield source
        progress.count += 1


class _ThreadState(local):
    """Thread-local state."""

    def __init__(self) -> None:
        self.machines: dict[Processor, Any] = {}

    def machine(self, processor: Processor) -> Any:
        """Return a cached machine: creating one takes a third of a short compile."""
        if processor not in self.machines:
            self.machines[processor] = machine(processor)
        return self.machines[processor]


_thread_state = _ThreadState()


def _compile(source: str, processor: Processor) -> bytes:
    """Compile a module of LLVM IR to an object file; thread-safe."""
    library = llvm.binding()
    module = library.parse_assembly(source, library.create_context())
    module.verify()
    return emit(_thread_state.machine(processor), module)


def emit(machine: Any, module: Any) -> bytes:
    """Run `machine.emit_object(module)` without the global lock of llvmlite.

    llvmlite runs one thread at a time. Threads with separate contexts and machines do
    not need the lock, so the one long call bypasses it.
    """
    ffi = llvm.binding().ffi
    locked = ffi.lib.LLVMPY_TargetMachineEmitToMemory
    emitting = getattr(locked, "_cfn", locked)
    with ffi.OutputString() as problem:
        buffer = emitting(machine, module, True, problem)
        if not buffer:
            raise RuntimeError(str(problem))
    try:
        size = ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def link(objects: Iterable[bytes], names: Iterable[str]) -> dict[str, int]:
    """Load object files and return the addresses of the named functions."""
    library = llvm.binding()
    # An engine owns its machine, so each engine needs a new machine.
    machine = library.Target.from_default_triple().create_target_machine(jit=True)
    # The memory manager of llvmlite places the sections of an object together. The one
    # of LLVM can place them further apart than an address of 32 bits reaches, in a
    # process whose memory is fragmented, such as a worker of Ray. LLVM then aborts.
    linked = library.create_mcjit_compiler(
        library.parse_assembly(""), machine, use_lmm=True
    )
    for code in objects:
        linked.add_object_file(library.ObjectFileRef.from_data(code))
    linked.finalize_object()
    _linked.append(linked)
    return {name: int(linked.get_function_address(name)) for name in names}


# Loaded code is never freed: programs contain its addresses.
_linked: list[Any] = []


class Module:
    """Loaded machine code with the addresses of its functions by name."""

    def __init__(self, code: bytes) -> None:
        self._names: dict[str, int] = {}
        self._code = code

    def address(self, name: str) -> int:
        """Return the address of a function."""
        if name not in self._names:
            self._names.update(link([self._code], [name]))
        return self._names[name]


def compile_module(source: str) -> Module:
    """Compile IR text to machine code, with the disk cache."""
    processor = current()
    content = "\0".join((*facts(processor), source))
    key = hashlib.sha256(content.encode()).hexdigest()
    return Module(machine_codes({key: lambda: source}, processor)[0])


def cache_folder() -> Path | None:
    """Return the folder of compiled objects; None if caching is off or unsafe."""
    return disk_cache.folder("jit")
