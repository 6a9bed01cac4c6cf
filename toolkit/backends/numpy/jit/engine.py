"""From LLVM IR to machine code that is loaded here.

Compiled objects are kept on disk by the hash of their IR, the CPU and the versions.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from threading import local
from typing import Any

from toolkit import settings
from toolkit.backends import disk_cache
from toolkit.backends.numpy.jit import llvm
from toolkit.backends.numpy.jit.processor import Processor, current
from toolkit.console.progress import Stage, stage

# Changes whenever the meaning of what is cached does.
FORMAT = "4"
SETTINGS = {
    "opt": 2,
    "reloc": "pic",
    # The large model reaches constants through one offset table, which comes out wrong
    # where several objects are linked at once.
    "codemodel": "small",
}


def facts(processor: Processor) -> tuple[str, ...]:
    """Whatever changes these makes other machine code of the same text."""
    flags = repr((llvm.FLAGS, sorted(SETTINGS.items())))
    return (FORMAT, llvm.version(), repr(processor), flags)


def digest(processor: Processor) -> str:
    """A hash of the facts."""
    return hashlib.sha256("\0".join(facts(processor)).encode()).hexdigest()


def machine(processor: Processor) -> Any:
    """A new generator of machine code that runs here; for one thread at a time."""
    target = llvm.binding().Target.from_default_triple()
    return target.create_target_machine(
        cpu=processor.cpu, features=processor.features, jit=True, **SETTINGS
    )


def machine_code(key: str, text: Callable[[], str]) -> bytes:
    """The object file of a function; see `machine_codes`."""
    return machine_codes({key: text})[0]


def machine_codes(
    texts: Mapping[str, Callable[[], str]], processor: Processor | None = None
) -> list[bytes]:
    """The object files of functions, from the disk cache if they are there.

    Args:
        texts: by the function's name, different for everything that differs, what
            returns the LLVM IR; called only if the object is not in the cache.
        processor: that they are for, one that can run here; None: this one.
    """
    processor = processor or Processor.host()
    folder = cache_folder()
    found = {key: disk_cache.load(folder / key) if folder else None for key in texts}
    new = [key for key, code in found.items() if code is None]
    compiled = _compile_all((texts[key]() for key in new), len(new), processor)
    for key, code in zip(new, compiled, strict=True):
        found[key] = code
        if folder:
            disk_cache.store(folder / key, code)
    if folder and new:
        disk_cache.trim_at_times(folder)
    return [code for code in found.values() if code is not None]


def _compile_all(
    sources: Iterator[str], count: int, processor: Processor
) -> list[bytes]:
    """The object files of modules; this thread writes the next while others compile."""
    threads = min(count, settings.num_threads())
    with stage("kernels", count) as written:
        told, to = _told(sources, written), repeat(processor)
        if threads < 2:
            return list(map(_compile, told, to))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(_compile, told, to))


def _told(sources: Iterator[str], written: Stage) -> Iterator[str]:
    for source in sources:
        yield source
        written.done += 1


class _Own(local):
    """What each thread has for itself."""

    def __init__(self) -> None:
        self.machines: dict[Processor, Any] = {}

    def machine(self, processor: Processor) -> Any:
        """It takes a third of the time of a short function to make one."""
        if processor not in self.machines:
            self.machines[processor] = machine(processor)
        return self.machines[processor]


_own = _Own()


def _compile(source: str, processor: Processor) -> bytes:
    """The object file of a module of LLVM IR, on any thread."""
    library = llvm.binding()
    module = library.parse_assembly(source, library.create_context())
    module.verify()
    return emit(_own.machine(processor), module)


def emit(machine: Any, module: Any) -> bytes:
    """`machine.emit_object(module)` that other threads need not wait for.

    llvmlite lets in one thread at a time. What shares neither a context nor a machine
    needs no such lock, so the one long call goes around it.
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
    """Load object files; the addresses of the functions of these names."""
    library = llvm.binding()
    # An engine owns its machine, so each gets one of its own.
    machine = library.Target.from_default_triple().create_target_machine(jit=True)
    linked = library.create_mcjit_compiler(library.parse_assembly(""), machine)
    for code in objects:
        linked.add_object_file(library.ObjectFileRef.from_data(code))
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
    processor = current()
    what = "\0".join((*facts(processor), source))
    key = hashlib.sha256(what.encode()).hexdigest()
    return Module(machine_codes({key: lambda: source}, processor)[0])


def cache_folder() -> Path | None:
    """The folder of compiled objects; None if caching is off or not safe there."""
    return disk_cache.folder("jit")
