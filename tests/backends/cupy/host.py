"""A device in host memory, which tests the GPU backend without a GPU.

g++ compiles the generated kernels. NumPy computes products and convolutions from their
descriptors, addresses and strides only.
"""

import ctypes
import hashlib
import os
import subprocess
from collections import defaultdict, deque
from contextlib import contextmanager
from functools import partial
from threading import RLock

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tests.backends.cuda.host import GXX, OPTIONS, SHIM
from toolkit import dtypes
from toolkit.backends import get_backend
from toolkit.backends.cupy.device import Device, OutOfMemory

POISON = 0xA5
CTYPES = {
    np.int64: ctypes.c_longlong,
    np.int32: ctypes.c_int,
    np.float32: ctypes.c_float,
    np.float64: ctypes.c_double,
}
ACCUMULATE = {"64F": np.float64, "32F": np.float32, "32F_FAST_TF32": np.float32}


class DeviceArray(np.ndarray):
    """Memory of the device: nothing of the host's own kind."""

    lease, home = None, "gpu:0"

    def __array_finalize__(self, source):
        self.lease = getattr(source, "lease", None)
        self.home = getattr(source, "home", "gpu:0")

    def __array_function__(self, function, types, args, kwargs):
        if function is np.broadcast_to:  # its view must hold the memory, as in CuPy
            kwargs = {**kwargs, "subok": True}
        return super().__array_function__(function, types, args, kwargs)

    @property
    def __cuda_array_interface__(self):
        interface = dict(self.__array_interface__)
        return interface | {"version": 3}


class Memory:
    """A piece of the pool, which gets it back when no array holds it any more."""

    def __init__(self, device, nbytes):
        self.device, self.nbytes = device, nbytes
        pieces = device.pool[nbytes]
        self.raw = pieces.pop() if pieces else np.empty(nbytes + 256, np.uint8)
        device.used += nbytes

    def __del__(self):
        self.device.used -= self.nbytes
        self.device.pool[self.nbytes].append(self.raw)


class Stream:
    """Queue of launches that have not run yet, in order."""

    def __init__(self, device, name):
        self.device, self.name, self.queue = device, name, deque()

    def wait_event(self, event):
        self.device.submit(self, "wait", event.mark)


class Mark:
    """A moment of a stream: whether it was reached."""

    def __init__(self):
        self.reached = False


class Event:
    def __init__(self, device):
        self.device, self.mark, self.stream = device, Mark(), None
        self.mark.reached = True

    def record(self, stream):
        self.mark, self.stream = Mark(), stream
        self.device.submit(stream, "mark", self.mark)

    @property
    def done(self):
        return self.mark.reached

    def synchronize(self):
        if not self.mark.reached:
            self.device.log.append(f"wait for {self.stream.name}")
        self.device.run_until(self.mark)


class Sticky(RuntimeError):
    """Error that every call reports after a kernel has failed."""


class HostDevice(Device):
    """Simulated GPU in host memory.

    A launch runs immediately. If `order` names the streams, it runs when the host waits
    for it: then the first stream runs as far as it can, then the second, and so on.

    Args:
        folder: the build folder of kernels.
        built: the libraries of kernels that have been built.
        libraries: the available libraries.
        limit: bytes of memory.
        order: the streams "stream", "copies", "fetches" and "exchanges" by priority.
    """

    captures = True
    failures = (Sticky,)

    def __init__(
        self,
        folder,
        built,
        libraries=("cublaslt", "cudnn"),
        limit=1 << 30,
        order=(),
        number=0,
    ):
        super().__init__()
        self.name = f"gpu:{number}"
        self.folder = folder
        self.libraries = frozenset(libraries)
        self.limit = limit
        self.used = 0
        self.pool = defaultdict(list)
        self.log = []  # launches and captured launches
        self.ran = []  # (stream, launch) in the order of execution
        self.depth = 0
        self.trims = 0
        self.built = built
        self.fault = None  # a kernel's name that fails, and all after it
        names = ("stream", "copies", "fetches", "exchanges")
        self.streams = {name: Stream(self, name) for name in names}
        self.stream, self.copies, self.fetches, self.exchanges = self.streams.values()
        self.order = order
        self.lock = RLock()

    @contextmanager
    def scope(self):
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    # --- streams ---

    def submit(self, stream, kind, work):
        """Put something at the end of a stream: a Mark, or a function to call."""
        with self.lock:
            self.check_fault()
            stream.queue.append((kind, work))
            if not self.order:
                self.drain()

    def check_fault(self):
        if self.fault is True:
            raise Sticky("an illegal memory access was encountered")

    def step(self):
        """Run the next launch of the first stream that can continue."""
        for name in self.order or self.streams:
            queue = self.streams[name].queue
            if queue and not (queue[0][0] == "wait" and not queue[0][1].reached):
                kind, work = queue.popleft()
                if kind == "mark":
                    work.reached = True
                elif kind != "wait":
                    self.ran.append((name, kind))
                    work()
                return
        raise AssertionError("every stream waits for another")

    def drain(self):
        with self.lock:
            while any(s.queue for s in self.streams.values()):
                self.step()

    def run_until(self, mark):
        with self.lock:
            self.check_fault()
            while not mark.reached:
                self.step()
            self.check_fault()

    def event(self):
        return Event(self)

    def transfer(self, target, source, nbytes, stream):
        assert self.depth
        kind = {"stream": "copy", "copies": "upload", "fetches": "fetch"}[stream.name]
        self.log.append(kind)
        self.submit(stream, kind, partial(ctypes.memmove, target, source, nbytes))

    def synchronize(self):
        self.log.append("synchronize")
        self.check_fault()
        self.drain()

    # --- memory ---

    def empty(self, shape, dtype):
        kind = dtypes.numpy_dtype(dtype)
        nbytes = int(np.prod(shape)) * kind.itemsize
        if nbytes > self.room():
            raise OutOfMemory(f"{nbytes} bytes")
        memory = Memory(self, nbytes)
        start = -memory.raw.ctypes.data % 256
        address = memory.raw.ctypes.data + start
        if nbytes:
            poison = partial(ctypes.memset, address, POISON, nbytes)
            self.submit(self.stream, "poison", poison)
        return self.lend(memory.raw[start:], shape, dtype, memory)

    def lend(self, memory, shape, dtype, lease):
        view = np.ndarray(shape, dtypes.numpy_dtype(dtype), memory).view(DeviceArray)
        view.lease, view.home = lease, self.name
        return view

    def owns(self, array):
        return isinstance(array, DeviceArray) and array.home == self.name

    def pin(self, nbytes):
        return np.full(nbytes, POISON, np.uint8)

    def download(self, array):
        self.log.append("download")
        return super().download(array)

    def adopt(self, array):
        assert not self.depth, "the stream of the array's maker would not be known"
        interface = array.__cuda_array_interface__
        assert interface["strides"] is None, "made from a whole array"
        copy = self.empty(interface["shape"], np.dtype(interface["typestr"]).name)
        with self.scope():
            self.copy(copy.ctypes.data, interface["data"][0], copy.nbytes)
        return copy

    def address(self, array):
        return array.ctypes.data

    def view(self, arena, offset, shape, dtype):
        array = np.ndarray(shape, dtypes.numpy_dtype(dtype), arena, offset)
        array = array.view(DeviceArray)
        array.lease, array.home = arena.lease, self.name
        return array

    def room(self):
        return self.limit - self.used

    def memory(self):
        return f"{self.used:,} of {self.limit:,} bytes are in use"

    def trim(self):
        self.trims += 1

    def capture(self, start):
        self.log.append("capture")

        def replay():
            self.log.append("replay")
            last = self.last
            try:
                start()
            finally:  # one call has started all of them
                self.last = last

        return replay

    def load(self, kernels):
        new_kernels = [k for k in kernels if k not in self.built]
        if new_kernels:
            self._build(new_kernels)
        return [self._function(k, self.built[k]) for k in kernels]

    def _build(self, kernels):
        sources = [f'#include "{SHIM}"']
        for kernel in kernels:
            types = enumerate(kernel.parameters)
            arguments = ", ".join(f"*({ctype}*)a[{i}]" for i, ctype in types)
            body = kernel.source.rpartition("#endif")[2]
            fibers = int("__syncthreads" in body or "exchange(" in body)
            sources += [
                kernel.source,
                f"static void call_{kernel.name}(void** a) "
                f"{{ {kernel.name}({arguments}); }}",
                f'extern "C" void run_{kernel.name}(void** a, const unsigned* sizes) '
                f"{{ run_grid(call_{kernel.name}, a, sizes, {fibers}, false); }}",
            ]
        text = "\n".join(sources)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        library = self.folder / f"{name}.so"
        if not library.exists():
            # Other processes of a job may build the same library.
            path = self.folder / f"{name}-{os.getpid()}"
            source, target = path.with_suffix(".cpp"), path.with_suffix(".so")
            source.write_text(text)
            command = [GXX, *OPTIONS, "-O0", "-shared", str(source), "-o", str(target)]
            completed = subprocess.run(
                command, capture_output=True, text=True, check=False
            )
            assert completed.returncode == 0, completed.stderr[:4000]
            target.rename(library)
        loaded = ctypes.CDLL(str(library))
        self.built.update(dict.fromkeys(kernels, loaded))

    def _function(self, kernel, library):
        run = getattr(library, f"run_{kernel.name}")

        def start(grid, block, arguments, shared):
            assert self.depth, "started outside of the device's scope"
            assert len(arguments) == len(kernel.parameters)
            cells = [
                CTYPES[type(a)](a) if type(a) in CTYPES else ctypes.c_void_p(a)
                for a in arguments
            ]
            pointers = [ctypes.addressof(cell) for cell in cells]
            array = (ctypes.c_void_p * len(pointers))(*pointers)
            sizes = (ctypes.c_uint * 6)(*grid, *block)

            def work(alive=cells):
                run(array, sizes)
                if self.fault == kernel.name:
                    self.fault = True

            self.log.append(kernel.name)
            self.submit(self.launch_stream, kernel.name, work)

        return start

    def product(self, gemm, pointers, workspace):
        def start(where, scratch):
            assert self.depth
            self.log.append("product")
            error = self.rounding(gemm.m, gemm.n, gemm.k, gemm.batch)
            self.submit(self.stream, "product", partial(multiply, gemm, where, error))

        return start

    def dnn(self, signature, workspace):
        return Convolution(self, signature, workspace, self.rounding)

    def rounding(self, *extents):
        """Return a factor of the results of library calls with operands of a shape."""
        return 1.0


def memory_at(address, shape, strides, dtype):
    """Return an array on the memory at an address; strides are in elements."""
    kind = dtypes.numpy_dtype(dtype)
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    block = (ctypes.c_uint8 * ((last + 1) * kind.itemsize)).from_address(address)
    flat = np.frombuffer(block, kind)
    return as_strided(flat, shape, [s * kind.itemsize for s in strides])


def multiply(gemm, pointers, error=1.0):
    """Compute the product of a cuBLASLt descriptor. Matrices are column-major."""
    extras = dict(zip(gemm.extras, pointers[3:], strict=True))
    layouts = [*gemm.layouts, gemm.layouts[2]]
    matrices = []
    for layout, pointer in zip(layouts, [*pointers[:3], extras.get("c")], strict=True):
        names = {number: name for name, number in TYPES.items()}
        shape = layout["batch"], layout["rows"], layout["columns"]
        strides = layout["stride"], 1, layout["leading"]
        assert layout["leading"] >= layout["rows"]
        if pointer is not None:
            matrices.append(memory_at(pointer, shape, strides, names[layout["type"]]))
    a, b, d, *c = matrices
    kind = ACCUMULATE[gemm.compute]
    a, b = (
        (x.swapaxes(1, 2) if is_transposed else x).astype(kind)
        for x, is_transposed in zip((a, b), gemm.transpose, strict=True)
    )
    result = error * gemm.alpha * (a @ b)
    assert bool(c) == (gemm.beta != 0)
    for added in c:
        result = result + gemm.beta * added.astype(kind)
    finished = finish(gemm, result, a, extras)
    d[...] = finished.astype(d.dtype)


def finish(gemm, result, a, epilogue_pointers):
    """Apply an epilogue to a product and write its auxiliary outputs."""
    name, kind, vector, aux = gemm.epilogue, result.dtype, None, None
    if "bias" in gemm.extras:
        vector = memory_at(
            epilogue_pointers["bias"], (gemm.m, 1), (1, 0), gemm.dtypes[1]
        )
    if "aux" in gemm.extras:
        assert gemm.batch == 1
        leading, is_mask = gemm.aux_leading, "relu" in name
        assert leading >= gemm.m
        assert leading % (128 if is_mask else 8) == 0
        assert epilogue_pointers["aux"] % 16 == 0
        dtype = "uint8" if is_mask else gemm.dtypes[1]
        step = leading // 8 if is_mask else leading
        rows = step if is_mask else gemm.m
        aux = memory_at(epilogue_pointers["aux"], (rows, gemm.n), (1, step), dtype)
    if "bias" in name:
        result = result + vector.astype(kind)
    if name.startswith("relu"):
        if aux is not None:
            bits = np.zeros((gemm.aux_leading, gemm.n), bool)
            bits[: gemm.m] = result[0] > 0
            aux[...] = np.packbits(bits, axis=0, bitorder="little")
        return np.maximum(result, 0)
    if name.startswith("gelu"):
        if aux is not None:
            aux[...] = result[0].astype(aux.dtype)
        return gelu(result)[0]
    if name.startswith("drelu"):
        bits = np.unpackbits(np.ascontiguousarray(aux), axis=0, bitorder="little")
        result = result * bits[: gemm.m]
    if name.startswith("dgelu"):
        result = result * gelu(aux.astype(kind))[1]
    if "bgrad" in name:
        total = a.sum(axis=2) if name == "bgrada" else result.sum(axis=2)
        vector[...] = total.T.astype(vector.dtype)
    return result


def gelu(x):
    """gelu by tanh, and its derivative."""
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    y = np.tanh(inner)
    return 0.5 * x * (1 + y), 0.5 * (1 + y) + 0.5 * x * (1 - y * y) * slope


from toolkit.backends.cupy.cublaslt import DATA_TYPES as TYPES  # noqa: E402


class Convolution:
    """Convolution graph of cuDNN, computed by the reference backend."""

    def __init__(self, device, signature, workspace, rounding=lambda *extents: 1.0):
        self.device = device
        self.rounding = rounding
        self.signature = signature
        self.workspace = 1024

    def __call__(self, pointers, workspace):
        assert self.device.depth
        assert workspace
        self.device.log.append("dnn")
        self.device.submit(self.device.stream, "dnn", partial(self.work, pointers))

    def work(self, pointers):
        tensors, values = self.signature.tensors, {}
        remaining = iter(pointers)
        uids = sorted((t.uid, i) for i, t in enumerate(tensors) if t.uid)
        addresses = {i: next(remaining) for _, i in uids}
        for i, address in addresses.items():
            t = tensors[i]
            values[i] = memory_at(address, t.shape, t.strides, t.dtype)
        for node in self.signature.nodes:
            values_of_node = self.apply(node, [values[i] for i in node.inputs], tensors)
            results = (
                values_of_node
                if isinstance(values_of_node, tuple)
                else (values_of_node,)
            )
            error = np.float32(self.rounding(*tensors[node.outputs[0]].shape))
            for y, result in zip(node.outputs, results, strict=True):
                result = result * error
                if y in addresses:
                    values[y][...] = result.astype(values[y].dtype)
                else:
                    values[y] = result

    def apply(self, node, inputs, tensors):
        inputs = [np.asarray(x, np.float32) for x in inputs]
        if node.op.startswith("sdpa"):
            return attend(dict(node.arguments), *inputs)
        if node.op.startswith("batchnorm"):
            return normalize(dict(node.arguments), *inputs)
        if node.op == "relu":
            return np.maximum(inputs[0], 0)
        if node.op == "add":
            return inputs[0] + inputs[1]
        kernels, arguments = get_backend("reference").kernels, dict(node.arguments)
        pairs = zip(arguments["pre_padding"], arguments["post_padding"], strict=True)
        attrs = {
            "strides": arguments["stride"],
            "dilation": arguments["dilation"],
            "padding": tuple(pairs),
        }
        first = np.moveaxis(inputs[0], 1, -1)
        shape = tensors[node.outputs[0]].shape
        if node.op == "conv_wgrad":
            second = np.moveaxis(inputs[1], 1, -1)
            groups = inputs[0].shape[1] // shape[1]
            attrs.update(kernel=shape[2:], groups=groups)
            result = kernels["conv_kernel_grad"](first, second, **attrs)
            return np.moveaxis(result, (-1, -2), (0, 1))
        second = np.moveaxis(inputs[1], (0, 1), (-1, -2))
        if node.op == "conv_dgrad":
            groups = shape[1] // inputs[1].shape[1]
            attrs.update(spatial=shape[2:], groups=groups)
            result = kernels["conv_input_grad"](first, second, **attrs)
        else:
            groups = inputs[0].shape[1] // inputs[1].shape[1]
            result = kernels["conv"](first, second, groups=groups, **attrs)
        return np.moveaxis(result, -1, 1)


def attend(arguments, q, k, v, o=None, g=None, rows=None):
    """Attention of (batch, heads, n, features) and its rows, or its gradients."""
    shape, shared = k.shape, q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, shared, axis=1) for x in (k, v))
    logits = q @ k.swapaxes(2, 3) * arguments["attn_scale"]
    if arguments["use_causal_mask"]:
        logits = np.where(np.tri(*logits.shape[2:]), logits, -np.inf)
    if g is None:
        peak = logits.max(axis=3, keepdims=True)
        rows = peak + np.log(np.exp(logits - peak).sum(axis=3, keepdims=True))
        return np.exp(logits - rows) @ v, rows
    weights = np.exp(logits - rows)
    delta = (o * g).sum(axis=3, keepdims=True)
    change = weights * (g @ v.swapaxes(2, 3) - delta) * arguments["attn_scale"]
    gradients = change.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ g
    by_key = (shape[0], shape[1], shared, *shape[2:])
    return change @ k, *(x.reshape(by_key).sum(axis=2) for x in gradients)


def normalize(arguments, x, *operands):
    """Return the outputs and moving averages of `batchnorm`, or its gradients."""
    axes = (0, *range(2, x.ndim))
    if arguments:
        scale, offset, *averages = operands
        mean, variance = (f(x, axes, keepdims=True) for f in (np.mean, np.var))
        factor = 1 / np.sqrt(variance + arguments["epsilon"])
        count = x.size // mean.size
        unbiased = variance * count / max(count - 1, 1)
        pairs = zip(averages, (mean, unbiased), strict=True)
        moving_averages = [a + arguments["momentum"] * (new - a) for a, new in pairs]
        return (x - mean) * factor * scale + offset, mean, factor, *moving_averages
    g, (x, scale, mean, factor) = x, operands
    normalized = (x - mean) * factor
    total, along = (np.sum(v, axes, keepdims=True) for v in (g, g * normalized))
    change = g - (total + normalized * along) / (x.size // mean.size)
    return change * factor * scale, along, total
