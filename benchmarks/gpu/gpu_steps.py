"""Steps of a GPU session, most valuable first.

Each is a process with its own time limit. In a rehearsal the same steps run on host
memory. Tests and CPU measurements then run in a short form.
"""

import sys

from gpu_rehearsal import is_on, size
from gpu_runner import BENCHMARKS, Step
from gpu_table import RUNS

# Number of parts of the conformance tests. Every process collects all tests.
PARTS = 2
CONFORMANCE = "tests/backends/test_kernels.py"
# CPU cases that are measured with each number of threads.
CORES = size((16, 8, 4, 2, 1), (1,))
CASES_OF_CORES = size(("cifar_cnn/fit", "mnist_mlp/fit"), ("mnist_mlp/fit",))
GPU = size(("cupy",), ())
TESTS = ("pytest", "hypothesis")
# A sample of the kernels: memory checks of every access cost a factor of 100.
WATCHED = ("-k", "sum and not allocates", "--case", "float32", "-x")
SANITIZER = "compute-sanitizer"


def steps():
    """Return all steps."""
    return [*correctness_steps(), *speed_steps(), *limit_steps(), *core_steps()]


def correctness_steps():
    """Return the steps that check correctness."""
    yield stage("facts", 90, *GPU)
    yield stage("first", 120, *GPU)
    selection = size((), ("-k", "exp and out_may_be", "--case", "float32"))
    for number in range(1, PARTS + 1):
        environment = {"GPU_PART": f"{number}/{PARTS}"}
        options = ("--backend=cupy", *selection)
        yield tests(f"conformance-{number}", 240, CONFORMANCE, *options, **environment)
    yield stage("calls", 120, *GPU)
    yield stage("accuracy", 90, *GPU)
    yield stage("fits", 150, *GPU)
    which = size("cuda", "cuda and updates_of_all")
    yield tests("programs", 120, "tests/backends/cupy", "-k", which)


def speed_steps():
    """Return the steps that profile and time training steps, compared with peers."""
    yield stage("read", 120, *GPU)
    for case, precision in RUNS:
        arguments = (case, precision, "{limit}")
        name = f"profile-{case}-{precision}"
        yield stage(name, 120, *GPU, name="profile", arguments=arguments, minimum=30)
    for case, precision in RUNS:
        arguments = (case, precision, "{limit}")
        name = f"speed-{case}-{precision}"
        yield stage(name, 300, *GPU, name="speed", arguments=arguments, minimum=45)
    if not is_on():
        yield stage("compiled", 500, *GPU, "torch", arguments=("{limit}",), minimum=120)


def limit_steps():
    """Return the steps that check limits and run external tools."""
    yield stage("autotune", 150, *GPU)
    yield stage("memory", 90, *GPU)
    yield stage("processes", 90, *GPU)
    yield stage("nccl", 60, *GPU, "nvidia.nccl")
    yield stage("ranks", 240, *GPU, *size(("nvidia.nccl",), ()), minimum=60)
    yield stage("rank_step", 90, *GPU)
    for tool in ("memcheck", "racecheck"):
        watch = (SANITIZER, "--error-exitcode", "9", "--tool", tool)
        command = (*watch, *pytest(CONFORMANCE, "--backend=cupy", *WATCHED))
        modules = (*TESTS, *GPU)
        yield Step(tool, command, 90, modules=modules, programs=(SANITIZER,))
    if not is_on():  # in host memory the smallest training takes minutes
        # `distributed` tests processes on the CPU.
        short = ("tests/examples", "-k", "short and not distributed")
        yield tests("examples", 150, *short, TOOLKIT_DEVICE="gpu")


def core_steps():
    """Return the CPU measurements, compared with peers, for each number of threads."""
    peers = size(("--here", "--rounds", "3"), ("--quick",))
    for count in CORES:
        for case in CASES_OF_CORES:
            name = f"cores-{count}-{case.replace('/', '-')}"
            options = ("--threads", str(count), "--only", case, "--json", "{json}")
            yield Step(
                name, script("peers/peers.py", *peers, *options), 150, minimum=30
            )


def script(name, *arguments):
    """Return the command of a file in benchmarks/."""
    return sys.executable, str(BENCHMARKS / name), *arguments


def stage(step, limit, *modules, name="", arguments=(), minimum=10.0):
    """Return a step for a function of gpu_stages.py."""
    command = script("gpu/gpu_stages.py", name or step, "{json}", *arguments)
    return Step(step, command, limit, minimum, modules)


def pytest(*arguments):
    """Return a test run that reports each failure briefly."""
    options = ("-q", "--tb=short", "-p", "no:cacheprovider", "-p", "gpu_results")
    return sys.executable, "-m", "pytest", *options, *arguments


def tests(step, limit, *arguments, **environment):
    """Return a step of tests in one process per core, with all failures.

    A worker whose device is broken is replaced. Warnings about newer packages are not
    failures.
    """
    options = ("--require-gpu", "-W", "default", "-m", "slow or not slow")
    workers = size(("-n", "auto", "--max-worker-restart", "1000"), ())
    command = pytest(*arguments, *options, *workers)
    variables = {"GPU_RESULTS": "{json}", **environment}
    return Step(step, command, limit, 25.0, (*TESTS, *GPU), environment=variables)
