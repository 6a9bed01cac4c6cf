"""Plan cuDNN graphs without a device: device properties and a stub driver.

cuDNN links against the driver, but plans for a described device do not use it. Without
a driver, a library in which every function fails replaces it.
"""

import ctypes
import json
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

from toolkit.backends.cupy import cudnn, libraries

# The properties of an H200 for cuDNN: `create_device_properties(0).serialize()`.
H200 = {
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536,
    "multiProcessorCount": 132,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "pciDeviceId": 0,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
    "totalGlobalMem": 150_109_880_320,
    "smClockRateKHz": 1_980_000,
    "memClockRateKHz": 3_201_000,
    "l2CacheSize": 62_914_560,
    "cudaDeviceId": 0,
    "deviceVer": 900,
    "driverVer": 13000,
    "deviceName": "NVIDIA H200",
}
SM = 90
# Functions of the driver that write a handle to the address in their first argument.
_MAKES = {"cuLibraryLoadData", "cuLibraryGetKernel", "cuLibraryGetModule"}
_MAKES |= {"cuKernelGetFunction", "cuModuleGetFunction", "cuModuleLoadData"}
_MAKES |= {"cuModuleLoadDataEx"}


def find_missing():
    """Why nothing can be planned here; "" if it can."""
    if find_spec("cudnn") is None:
        return "nvidia-cudnn-frontend is not installed"
    for name in libraries.ORDER:
        if libraries.path_of(name) is None:
            return f"{libraries.WHEELS[name]} is not installed"
    return ""


def load_stub(folder):
    """Load a stub of the driver functions that cuDNN needs, unless a driver exists.

    Args:
        folder: the build folder.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        return
    names = set()
    for path in libraries.path_of("cudnn").parent.glob("libcudnn_*.so.9"):
        names.update(re.findall(rb"\0(cu[A-Z][A-Za-z0-9_]+)\0", path.read_bytes()))
    names_without_cudnn = {
        name.decode() for name in names if not name.startswith(b"cudnn")
    }
    names_without_cudnn -= {"cuGetErrorString", "cuGetErrorName"}
    # Kernels compiled at run time count as loaded. No launch is possible.
    loads = ("cuLibrary", "cuKernel", "cuModule", "cuFunc")
    status = {
        name: 0 if name.startswith(loads) else 100
        for name in sorted(names_without_cudnn)
    }
    lines = [
        f"int {name}(void** p) {{ *p = (void*)8; return 0; }}"
        if name in _MAKES
        else f"int {name}(void) {{ return {n}; }}"
        for name, n in status.items()
    ]
    for name in ("cuGetErrorString", "cuGetErrorName"):
        lines.append(f'int {name}(int e, const char** s) {{ *s = "stub"; return 0; }}')
    source, library = folder / "stub.c", folder / "libcuda.so.1"
    source.write_text("\n".join(lines))
    command = ["gcc", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, "-o", str(library), str(source)], check=True)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def properties(path=None):
    """Return the properties of the target: from a file, or of an H200."""
    text = Path(path).read_text("utf-8") if path else json.dumps(H200)
    device_properties = cudnn.frontend().create_device_properties(text)
    return {"device_property": device_properties, "sm_version": SM}
