"""Test how Keras finds the backend: the import finder, and the command line."""

import os
import subprocess
import sys

import pytest

from keras_toolkit import __main__ as command, finder

SCRIPT = """
import keras
import numpy as np
import sys

assert keras.backend.backend() == "toolkit", keras.backend.backend()
x = keras.ops.add(1.0, np.ones((2,), "float32"))
print(type(x).__module__, sys.argv[1:])
"""


def run(*arguments, cwd, backend=None):
    paths = os.pathsep.join(sys.path)  # the tested checkout is first
    environment = {**os.environ, "KERAS_HOME": str(cwd), "PYTHONPATH": paths}
    environment.pop("KERAS_BACKEND", None)
    if backend is not None:
        environment["KERAS_BACKEND"] = backend
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_import_before_keras_chooses_the_backend(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import keras_toolkit\n" + SCRIPT)
    result = run(path, cwd=tmp_path)
    assert result.stdout == "toolkit.core.tensor []\n", result.stderr


def test_module_runs_a_script_with_its_arguments(script, tmp_path):
    result = run("-m", "keras_toolkit", script, "--epochs", "2", cwd=tmp_path)
    assert result.stdout == "toolkit.core.tensor ['--epochs', '2']\n", result.stderr


def test_module_runs_a_module(script, tmp_path):
    result = run("-m", "keras_toolkit", "-m", "script", "a", cwd=tmp_path)
    assert result.stdout == "toolkit.core.tensor ['a']\n", result.stderr


OWN_CHOICE = "import os\nos.environ['KERAS_BACKEND'] = 'tensorflow'\n"
OVERRIDE = (
    "keras_toolkit: the script selects the backend 'tensorflow'; it runs on toolkit\n"
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["keras_toolkit", "script.py"],
        ["keras_toolkit", "-m", "script"],
        ["toolkit", "run", "--keras", "script.py"],
    ],
)
def test_the_runners_override_the_choice_of_a_script(arguments, script, tmp_path):
    script.write_text(OWN_CHOICE + SCRIPT)
    result = run("-m", *arguments, "a", cwd=tmp_path)
    assert (result.stdout, result.stderr) == ("toolkit.core.tensor ['a']\n", OVERRIDE)


def test_import_after_the_choice_of_a_script(script, tmp_path):
    script.write_text(OWN_CHOICE + "import keras_toolkit\n" + SCRIPT)
    result = run(script, cwd=tmp_path)
    assert result.stdout == "toolkit.core.tensor []\n", result.stderr


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["no.py"], "keras_toolkit: cannot open 'no.py': there is no such file\n"),
        (["-m", "no_such"], "keras_toolkit: there is no module 'no_such'\n"),
        (["-m", "no_such.part"], "keras_toolkit: there is no module 'no_such.part'\n"),
        (["-m"], "keras_toolkit: expected a module after -m\n"),
        ([], "expected a script, -m, --install or --uninstall\n"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, expected, tmp_path):
    result = run("-m", "keras_toolkit", *arguments, cwd=tmp_path)
    assert result.returncode != 0 and "Traceback" not in result.stderr
    assert expected in result.stderr
    if expected.startswith("keras_toolkit"):
        assert result.stderr == expected


def test_usage_shows_a_script(tmp_path):
    result = run("-m", "keras_toolkit", "--help", cwd=tmp_path)
    usage = result.stdout.partition("\n\n")[0]
    assert "python -m keras_toolkit script.py [arguments]" in usage
    assert "-m module" in usage and "--uninstall" in usage


def test_import_after_keras_with_another_backend_is_refused(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        "import sys, types\n"
        "config = types.ModuleType('keras.src.backend.config')\n"
        "config.backend = lambda: 'jax'\n"
        "sys.modules[config.__name__] = config\n"
        "import keras_toolkit\n"
    )
    result = run(path, cwd=tmp_path)
    assert "import keras_toolkit before keras" in result.stderr


def test_modules_for_another_backend_are_untouched(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert all(
        finder.KerasFinder().find_spec(name, None) is None for name in finder.PATCHES
    )


def test_unknown_text_of_keras_is_refused():
    with pytest.raises(ImportError, match=r"keras\.src\.backend.*3\.12 to 3\.15"):
        finder.add_branch("keras.src.backend", "x = 1\n", "else:", "elif:")


def test_start_file_chooses_the_backend_by_its_name(script, tmp_path):
    path = tmp_path / "start.pth"
    assert "KERAS_BACKEND=toolkit" in command.install(path)
    probe = f"{path.read_text()}\nexec(open({str(script)!r}).read())"
    result = run("-c", probe, cwd=tmp_path, backend="toolkit")
    assert result.stdout == "toolkit.core.tensor []\n", result.stderr
    assert "removed" in command.uninstall(path)
    assert not path.exists()


def test_changed_start_file_is_not_replaced(tmp_path):
    path = tmp_path / "start.pth"
    path.write_text("import os\n")
    with pytest.raises(SystemExit, match="was changed"):
        command.install(path)
    assert path.read_text() == "import os\n"


def test_changed_start_file_is_not_removed(tmp_path):
    path = tmp_path / "start.pth"
    path.write_text("import os\n")
    with pytest.raises(SystemExit, match="was changed"):
        command.uninstall(path)
    assert path.exists()
