"""Test that no child process runs a file of the current folder by accident."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import h5py
import pytest

from tests.comm.ranks import ENGINES, FLAGS
from tests.processes.hostile import (
    console,
    hostile,
    run_program,
    start,
    what_ran,
)

__all__ = ["hostile"]  # a fixture

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "toolkit"
GUIDE = ROOT / "docs" / "guides" / "processes.md"

# Patterns of code that starts a process or loads a library.
STARTS = re.compile(
    r"subprocess\.(Popen|run|call|check_call|check_output|getoutput|getstatusoutput)"
    r"|asyncio\.create_subprocess_\w+|pty\.(spawn|fork)|webbrowser\.\w+"
    r"|os\.(system|popen|startfile|fork|forkpty|exec\w+|spawn\w+|posix_spawn\w*)"
    r"|.*\bProcessPoolExecutor|(multiprocessing|mp|context)\.(Pool|Process|Manager)"
    r"|(multiprocessing\.)?get_context|multiprocessing\.set_executable"
    r"|.*\.Spawn(_multiple)?|platform\.(processor|uname|platform|libc_ver)"
    r"|ctypes\.(util\.)?(find_library|CDLL|PyDLL|WinDLL|OleDLL)|ctypes\.cdll\.\w+"
    r"|find_library|uuid\.getnode|uuid\.uuid1|load_library"
)


@cache
def call_sites():
    """Return (file, name of the call) for each mention of such code."""
    sites = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        hints = {
            id(annotation)
            for node in ast.walk(tree)
            for hint in (getattr(node, "annotation", None), getattr(node, "returns", 0))
            if isinstance(hint, ast.AST)
            for annotation in ast.walk(hint)
        }
        for node in ast.walk(tree):
            if isinstance(node, (ast.Attribute, ast.Name)) and id(node) not in hints:
                text = ast.unparse(node)
                if STARTS.fullmatch(text):
                    sites.add((path.relative_to(PACKAGE).as_posix(), text))
    return sites


def table():
    """Return the rows of the guide's tables, as lists of cells."""
    lines = GUIDE.read_text("utf-8").splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def test_every_call_site_is_in_the_table_of_the_guide():
    named = {cell.strip("`") for row in table() for cell in row[0].split(", ")}
    assert {file for file, _ in call_sites()} == named


def test_no_other_code_starts_a_process():
    names = {name for _, name in call_sites()}
    assert names <= {
        *("subprocess.Popen", "subprocess.run", "self.comm.Spawn"),
        *("ctypes.CDLL", "ctypes.WinDLL", "load_library", "platform.uname"),
    }


def test_only_python_command_starts_python():
    users = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\[[^\]]*sys\.executable", path.read_text("utf-8"))
    ]
    assert users == ["processes/python.py"]


def test_every_process_has_the_clean_environment():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                if ast.unparse(node.func) in ("subprocess.Popen", "subprocess.run"):
                    if "env" not in {keyword.arg for keyword in node.keywords}:
                        wrong.append(f"{path}:{node.lineno}")
    assert not wrong


# --- each kind of child, in a folder of hostile files ---------------------------------

PROGRAMS = {
    "HDF5 files": """
from pathlib import Path
from toolkit.reading.hdf5_probe import is_safe_to_read
assert is_safe_to_read(Path("latest.h5"))
""",
    "data workers": """
import operator
from toolkit.data import Dataset
made = Dataset.range(3).map(operator.neg, workers="process")
assert [int(x) for x in made] == [0, -1, -2]
""",
    "batches of a PyDataset": """
class Batches(toolkit.utils.PyDataset):
    def __len__(self):
        return 3
    def __getitem__(self, index):
        return index, __name__, os.getpid()

if __name__ == "__main__":
    found = list(Batches(workers=2, use_multiprocessing=True).fetch(range(3)))
    assert [index for index, *_ in found] == [0, 1, 2]
    assert {name for _, name, _ in found} == {"__mp_main__"}
    assert os.getpid() not in {pid for *_, pid in found}
""",
    "plans of cuDNN": """
from toolkit.backends.cupy.planning import Planner
assert Planner("", 90).compute("no key") == b""
""",
    "busy cores": """
from toolkit.bench.busy import busy_processes
with busy_processes(1):
    pass
""",
    "the workers of the benchmark": """
from toolkit.bench.processes import ENVIRONMENT_REQUEST, Worker, WorkerCommand
from toolkit.bench.suite import OURS
worker = Worker(WorkerCommand(OURS.command, OURS.environment))
assert worker.query(ENVIRONMENT_REQUEST)["packages"]["numpy"]
worker.close()
""",
    "the launcher of a job": """
from toolkit.cli import mpirun
assert not [m for m in mpirun._list_launchers() if m.path.startswith(os.getcwd())]
""",
    "replacements of ranks": """
import subprocess
from toolkit.comm import jobs
from toolkit.comm.mpi import MpiEngine, MpiGroup
from toolkit.comm.watchdog import WatchedGroup
from toolkit.processes import clean_environment
group = WatchedGroup.__new__(WatchedGroup)
group.wrapped_group = MpiGroup.__new__(MpiGroup)
jobs._world[:] = [group]
jobs.script[:] = ["script.py", "x"]
MpiGroup.spawn = lambda self, command, count: command
jobs._engine[:] = [MpiEngine("", 2)]
jobs.PendingReplacements = lambda bridge: bridge
command = [sys.executable, *jobs.start_replacements(1)]
open("script.py", "w").write("import toolkit, sys; print(toolkit.__file__, sys.argv)")
done = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
assert done.stdout.split()[0] == toolkit.__file__, done
""",
    "the function of a notebook": """
def function(x):
    from toolkit import comm
    return comm.exchange(comm.world(), [x, toolkit.__file__])

if __name__ == "__main__":
    assert toolkit.launch_notebook(function, 2, arguments=[3]) == [
        [3, toolkit.__file__]] * 2
""",
    "linkers": """
from toolkit import layers
from toolkit.export.native.link import find_linker
model = toolkit.Sequential([toolkit.Input((2,)), layers.Dense(1)])
for triple in ("aarch64-unknown-linux-gnu", "wasm32-unknown-unknown"):
    find_linker(triple)
if find_linker("x86_64-unknown-linux-gnu"):
    model.export("m.so", verbose=False)
""",
    "questions about the machine": """
import pathlib
from toolkit import machine
from toolkit.cli.info import list_gpus
list_gpus()
machine.Path = lambda *_: pathlib.Path("/no/such/file")
assert machine.cpu_model()
""",
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_children_run_no_file_of_the_current_folder(kind, hostile, tmp_path):
    with h5py.File(hostile / "latest.h5", "w", libver="latest") as file:
        file["x"] = [1.0]
    process = run_program(PROGRAMS[kind], hostile, tmp_path / "clean")
    assert what_ran(hostile) == []
    assert process.returncode == 0, process.stderr


COMMANDS = ["inspect latest.h5", "info", "run sub/script.py"]


@pytest.mark.parametrize("command", [*COMMANDS, "run --hosts localhost sub/script.py"])
def test_commands_run_no_file_of_the_current_folder(command, hostile):
    with h5py.File(hostile / "latest.h5", "w", libver="latest") as file:
        file["x"] = [1.0]
    script_of_two_files(hostile)
    for program in ([console()], [sys.executable, "-P", "-m", "toolkit"]):
        process = start([*program, *command.split()], hostile)
        assert what_ran(hostile) == []
        assert "Traceback" not in process.stderr, process.stderr


def script_of_two_files(folder):
    """Write a script that imports a module of its folder, and prints its content."""
    (folder / "sub").mkdir()
    (folder / "sub" / "helper.py").write_text("WORD = 'helped'\n")
    (folder / "sub" / "script.py").write_text(
        "import os, sys\nimport helper, toolkit, numpy, struct\n"
        "toolkit.ops.ones((2, 2))\n"
        "folder = os.path.basename(sys.path[0])\n"
        "print(helper.WORD, toolkit.__file__, folder, sys.argv)\n"
        "print('in path', os.getcwd() in sys.path, '' in sys.path)\n"
        "print('first', os.environ['PATH'][:1] == os.pathsep)\n"
    )


@pytest.mark.parametrize("engine", [None, *ENGINES])
def test_ranks_run_no_file_of_the_current_folder(engine, hostile):
    script_of_two_files(hostile)
    count, flags = (2, FLAGS[engine]) if engine else (1, [])
    command = [console(), "run", "--processes", str(count), *flags]
    command += ["sub/script.py", "--x"]
    process = start(command, hostile)
    assert what_ran(hostile) == []
    assert process.returncode == 0, process.stderr
    for words in ("helped", str(PACKAGE), "sub ['sub/script.py', '--x']"):
        assert process.stdout.count(words) == count, process.stdout
    # The script has the search paths of the command, and not the current folder.
    assert process.stdout.count("in path False False") == count
    assert process.stdout.count("first True") == count


def test_script_finds_modules_of_PYTHONPATH(hostile):
    (hostile / "sub").mkdir()
    (hostile / "libraries").mkdir()
    (hostile / "libraries" / "mine.py").write_text("WORD = 'mine'\n")
    (hostile / "sub" / "script.py").write_text("import mine\nprint(mine.WORD)\n")
    code = (
        "import os, sys; os.environ['PYTHONPATH'] = 'libraries';"
        "sys.path.append(os.path.abspath('libraries'));"
        "from toolkit.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-P", "-c", code, "run", "--processes", "1"]
    process = start([*command, "sub/script.py"], hostile)
    assert (process.stdout, what_ran(hostile)) == ("mine\n", []), process.stderr


def test_workers_import_modules_that_the_parent_has_imported(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import toolkit, numpy\n"
        "def twice(x):\n    import later\n    return later.two(x)\n"
    )
    (tmp_path / "later.py").write_text("def two(x):\n    return 2 * x\n")
    code = (
        "import mine\nfrom toolkit.data import Dataset\n"
        "print([int(x) for x in Dataset.range(3).map(mine.twice, workers='process')])"
    )
    process = start([sys.executable, "-c", code], tmp_path)
    assert process.stdout == "[0, 2, 4]\n", process.stderr


def test_packages_of_the_current_folder_that_the_parent_uses(tmp_path):
    """All packages of a program may be in one folder, which is the current one."""
    (tmp_path / "vendored").mkdir()
    (tmp_path / "vendored" / "__init__.py").write_text("from vendored import part\n")
    (tmp_path / "vendored" / "part.py").write_text("WORD = 'vendored'\n")
    (tmp_path / "h5py.py").write_text("raise SystemExit('another h5py')\n")
    code = (
        "import vendored, subprocess, sys\n"
        "from toolkit.processes import clean_environment, python_command\n"
        "command = python_command('vendored.part:print')\n"
        "context = __import__('json').loads(command[-1])\n"
        "assert set(context['modules']) >= {'toolkit', 'vendored'}, context\n"
        "assert 'h5py' not in context['modules']\n"
        "subprocess.run(command, check=False, env=clean_environment())\n"
    )
    process = start([sys.executable, "-c", code], tmp_path)
    assert "has no attribute 'print'" in process.stderr  # and it was imported
