"""CUDA device by CuPy: memory, streams, modules and captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property, partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from threading import RLock, Thread
from typing import Any

import numpy as np

from toolkit import dtypes, settings
from toolkit.backends import disk_cache
from toolkit.backends.cupy import algorithms, cublaslt, cudnn, nvrtc, planning
from toolkit.backends.cupy.availability import cupy_module, usable_libraries
from toolkit.backends.cupy.compiling import Compiler
from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.backends.cupy.cuda.launch import Kernel, Launch
from toolkit.backends.cupy.device import Array, Device, OutOfMemory
from toolkit.backends.cupy.signatures import Signature
from toolkit.backends.cupy.steps import WORKSPACES, Dnn, Step
from toolkit.comm import nccl
from toolkit.comm.group import Group

# Runs of a timed plan in a graph, and launches of that graph.
TIMED, ROUNDS = 10, 3
SOME_PRODUCT = Gemm(
    *(64, 64, 64),
    transpose=(False, False),
    leading=(64, 64, 64),
    dtypes=("float32", "float32"),
    compute="32F",
)


def cache_folder() -> Path | None:
    """Return the folder of compiled kernels and plans; None without a disk cache."""
    return disk_cache.folder("kernels")


class CudaDevice(Device):
    """GPU with a device number.

    All work is on a separate stream, so it runs in launch order, and captures do not
    conflict with other libraries. One thread at a time is in the device's scope,
    because a launch of a second thread during a capture would be captured too.
    """

    captures = True

    def __init__(self, number: int) -> None:
        super().__init__()
        self.cupy: Any = cupy_module()
        self.runtime: Any = self.cupy.cuda.runtime
        self.name: str = f"gpu:{number}"
        self.device: Any = self.cupy.cuda.Device(number)
        with self.device:
            streams = [self.cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
        self.stream: Any
        self.copies: Any
        self.fetches: Any
        self.exchanges: Any
        self.stream, self.copies, self.fetches, self.exchanges = streams
        self.failures: tuple[Any, Any] = (
            self.runtime.CUDARuntimeError,
            self.cupy.cuda.driver.CUDADriverError,
        )
        self.libraries: frozenset[str]
        self.unavailable: dict[str, str]
        self.libraries, self.unavailable = usable_libraries()
        self.arch: int = int(self.device.compute_capability)
        self._compiler = Compiler(self._cubin)
        self._functions: dict[Kernel, Callable[..., None]] = {}
        self._entry_lock = RLock()
        self._is_entered = False
        if "cublaslt" in self.libraries:
            with suppress(RuntimeError):  # the system has no room for a thread
                Thread(target=self._warm_up_products).start()

    @contextmanager
    def scope(self) -> Iterator[None]:
        if self.broken:
            raise self.broken
        with self._entry_lock:
            if self._is_entered:  # scopes of a step nest
                yield
                return
            with self.device, self.stream:
                self._is_entered = True
                try:
                    yield
                finally:
                    self._is_entered = False

    def raising(self) -> AbstractContextManager[Any]:
        # otherwise Cholesky factors of invalid matrices are returned
        config = import_module("cupyx")
        raising: AbstractContextManager[Any] = config.errstate(linalg="raise")
        return raising

    # --- memory -----------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        try:
            with self.scope():
                return self.cupy.empty(shape, dtypes.numpy_dtype(dtype))
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            raise OutOfMemory(str(error)) from error

    def owns(self, array: Any) -> bool:
        is_cupy = isinstance(array, self.cupy.ndarray)
        return is_cupy and array.device.id == self.device.id

    def lend(
        self, memory: Array, shape: tuple[int, ...], dtype: str, lease: Any
    ) -> Array:
        address, cuda = self.address(memory), self.cupy.cuda
        owner = cuda.UnownedMemory(address, memory.nbytes, lease, self.device.id)
        pointer = cuda.MemoryPointer(owner, 0)
        return self.cupy.ndarray(shape, dtypes.numpy_dtype(dtype), memptr=pointer)

    def event(self) -> Any:
        with self.device:
            return self.cupy.cuda.Event(disable_timing=True)

    def pin(self, nbytes: int) -> Any:
        memory = self.cupy.cuda.alloc_pinned_memory(nbytes)
        return np.frombuffer(memory, np.uint8, nbytes)

    def adopt(self, array: Any) -> Array:
        take = self.cupy.from_dlpack
        if not hasattr(array, "__dlpack__"):
            take = self.cupy.asarray
        with self.device:  # CuPy allocates its arrays on the current stream
            event = self.cupy.cuda.get_current_stream().record()
        with self.scope():
            self.stream.wait_event(event)
            copy = take(array).copy()
            self.stream.synchronize()  # the owner can reuse the memory again
        return copy

    # A step calls this for hundreds of arrays.
    address = staticmethod(attrgetter("data.ptr"))  # type: ignore[assignment]

    def view(
        self, arena: Array, offset: int, shape: tuple[int, ...], dtype: str
    ) -> Array:
        kind = dtypes.numpy_dtype(dtype)
        return self.cupy.ndarray(shape, kind, memptr=arena.data + offset)

    def transfer(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        if nbytes:
            kind = self.runtime.memcpyDefault
            self.runtime.memcpyAsync(target, source, nbytes, kind, stream.ptr)

    def room(self) -> int:
        pool = self.cupy.get_default_memory_pool()
        with self.device:
            return int(self.device.mem_info[0] + pool.free_bytes())

    def memory(self) -> str:
        pool = self.cupy.get_default_memory_pool()
        with self.device:
            free, total = self.device.mem_info
        return (
            f"{free:,} of {total:,} bytes are free, the pool holds "
            f"{pool.total_bytes():,}, of which {pool.used_bytes():,} are in use"
        )

    def trim(self) -> None:
        self.synchronize()
        self.cupy.get_default_memory_pool().free_all_blocks()

    # --- other GPUs -------------------------------------------------------------------

    @property
    def identity(self) -> str:
        return nccl.device_name(self.runtime.deviceGetPCIBusId(self.device.id))

    @property
    def model(self) -> str:
        versions = f"CUDA {self.runtime.runtimeGetVersion()}"
        return f"{self._model} with {versions} and {super().model}"

    def connect(self, groups: Sequence[Group], world: Group) -> None:
        with self.device:
            nccl.check(world, self.identity)
            for group in groups:
                connected = nccl.connect(group, self.identity, self.exchanges.ptr)
                self.groups[group] = connected

    # --- work -------------------------------------------------------------------------

    def precompile(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Launch):
                if step.kernel not in self._functions:
                    self._compiler.precompile(step.kernel)
            # Autotuned plans are built in this process.
            elif isinstance(step, Dnn) and not settings.autotune():
                if planning.is_slow(step.signature):
                    self._precompile_plan((step.signature, WORKSPACES[0][1]))

    def _precompile_plan(self, key: cudnn.Key) -> None:
        with self.scope():
            if not self._graphs.has(key):
                self._planner.precompile(key)

    def cancel_precompile(self) -> None:
        self._compiler.cancel()
        if "_planner" in vars(self):
            self._planner.cancel()

    def load(self, kernels: Sequence[Kernel]) -> list[Callable[..., None]]:
        unloaded = [k for k in kernels if k not in self._functions]
        if unloaded:
            cubins = self._compiler.wait_for(unloaded)
            if folder := cache_folder():
                disk_cache.trim_periodically(folder)
            with self.device:
                for kernel, cubin in zip(unloaded, cubins, strict=True):
                    self._functions[kernel] = self._function(kernel, cubin)
        return [self._functions[k] for k in kernels]

    def _function(self, kernel: Kernel, cubin: bytes) -> Callable[..., None]:
        module = self.cupy.cuda.function.Module()
        module.load(cubin)
        function = module.get_function(kernel.name)
        most_shared = 48 << 10  # more needs an attribute of the function

        def start(grid: Any, block: Any, arguments: Any, shared: int) -> None:
            if shared > most_shared:
                self.cupy.cuda.driver.funcSetAttribute(function.ptr, 8, shared)
            function(grid, block, arguments, shared, self.launch_stream)

        return start

    def _cubin(self, kernel: Kernel) -> bytes:
        """Return the machine code of a kernel, from the disk cache if possible."""
        folder = cache_folder()
        key = nvrtc.key(kernel, self.arch, str(self.runtime.runtimeGetVersion()))
        path = folder and folder / f"{key}.cubin"
        cubin = path and disk_cache.load(path)
        if not cubin:
            cubin = nvrtc.compile_kernel(kernel, self.arch)
            if path:
                disk_cache.store(path, cubin)
        return cubin

    def _warm_up_products(self) -> None:
        """Request any algorithm, because the first request takes 0.1 s.

        This overlaps with the construction of the model.
        """
        with suppress(Exception), self.device:  # a program raises the same error later
            algorithms.Plans().offers(SOME_PRODUCT, 16, cublaslt.WORKSPACE)

    @cached_property
    def _products(self) -> algorithms.Plans:
        with self.device:
            folder = cache_folder()
            return algorithms.Plans(folder and folder / cudnn.to_file_name(self._model))

    @cached_property
    def _graphs(self) -> cudnn.Plans:
        with self.device:
            return cudnn.Plans(self._model, self.stream.ptr, cache_folder())

    @cached_property
    def _model(self) -> str:
        """Return a key of the device model, for the caches of the best plans."""
        properties = self.runtime.getDeviceProperties(self.device.id)
        return f"{properties['name'].decode()}-{self.arch}"

    def product(
        self, gemm: Gemm, pointers: tuple[int, ...], workspace: int
    ) -> Callable[[tuple[int, ...], int], None]:
        arguments, stream = (gemm, pointers, workspace), self.stream.ptr
        if settings.autotune():
            plan = self._products.tune(*arguments, self._product_seconds)
        else:
            plan = self._products.get(*arguments)
        return lambda where, scratch: plan(where, scratch, stream)

    def offers(self, gemm: Gemm, alignment: int) -> bool:
        """Query the library: its epilogue support is not documented elsewhere."""
        with self.device:
            return self._products.offers(gemm, alignment, cublaslt.WORKSPACE)

    @cached_property
    def _planner(self) -> planning.Planner:
        with self.device:
            return planning.Planner(cudnn.properties(self.device.id), self.arch)

    def prepare(self, signatures: Sequence[Signature], workspace: int | None) -> None:
        if settings.autotune():
            return
        slow = list(filter(planning.is_slow, signatures))
        if slow:
            for signature in signatures:  # while processes build the other plans
                if not planning.is_slow(signature):
                    self.dnn(signature, workspace)
            keys = [(signature, workspace) for signature in slow]
            with self.device:
                self._graphs.prepare(
                    keys, lambda lacking: self._planner.wait_for(lacking)
                )

    def dnn(self, signature: Signature, workspace: int | None) -> Any:
        with self.device:
            if settings.autotune():
                return self._graphs.tune(signature, workspace, self._graph_seconds)
            return self._graphs.get(signature, workspace)

    def _product_seconds(self, plan: algorithms.ProductAlgorithm) -> float:
        run = partial(plan, stream=self.stream.ptr)
        return self._seconds(plan.gemm.sizes, run, plan.limit)

    def _graph_seconds(self, plan: cudnn.GraphPlan) -> float:
        return self._seconds(plan.signature.sizes, plan, plan.workspace)

    def _seconds(self, sizes: Sequence[int], run: Any, workspace: int) -> float:
        """Return the run time of a plan on new memory, captured in a graph.

        The launch of a small plan from the host takes longer than the plan.
        """
        arrays = [self.empty((nbytes,), "uint8") for nbytes in sizes]
        memory = self.empty((max(1, workspace),), "uint8")
        scratch, pointers = self.address(memory), tuple(map(self.address, arrays))
        begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()

        def run_repeatedly() -> None:
            for _ in range(TIMED):
                run(pointers, scratch)

        with self.scope():
            run(pointers, scratch)  # the first run loads its modules
            replay, times = self.capture(run_repeatedly), []
            for _ in range(ROUNDS):
                begin.record(self.stream)
                replay()
                end.record(self.stream)
                end.synchronize()
                times.append(self.cupy.cuda.get_elapsed_time(begin, end))
        return 1e-3 * float(min(times)) / TIMED

    def synchronize(self) -> None:
        self.stream.synchronize()
        self.exchanges.synchronize()

    def capture(self, start: Callable[[], None]) -> Callable[[], None]:
        self.stream.begin_capture()
        try:
            start()
        except BaseException:
            # The stream of collectives may not have been joined.
            with suppress(*self.failures):
                self.stream.end_capture()
            raise
        graph = self.stream.end_capture()
        graph.upload(self.stream)
        return partial(graph.launch, self.stream)
