"""Test the package as a new user: an installed wheel, an empty folder, no repository.

Build the wheel and the source archive and check their contents. Install the archive
into a new environment, and the wheel into another one, which must have the same files.
Then train, run the code of the README, plot, save and inspect there.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = """
import json, pathlib, site
root = pathlib.Path(site.getsitepackages()[0])
files = (path for path in root.rglob("*") if path.is_file())
print(json.dumps([f.relative_to(root).as_posix() for f in files if f.suffix != ".pyc"]))
"""
# A larger wheel contains an unintended file. The Python files take 2.9 MB.
LIMIT = 3_400_000  # bytes


def call(*command: object, cwd: Path) -> str:
    """Run a command and return its output; its errors are printed."""
    print(f"$ {' '.join(map(str, command))}", flush=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    result = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=clean,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return result.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Build the wheel and the source archive, check them, and return both."""
    call(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    assert wheel.stat().st_size <= LIMIT, f"{wheel.name}: {wheel.stat().st_size} bytes"
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    information = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    expected = {"toolkit", "keras_toolkit", information}
    assert tops == expected, f"{wheel.name} holds {sorted(tops)}"
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes")
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, holding {sorted(tops)}")
    return wheel, sdist


def install(archive: Path, folder: Path) -> tuple[Path, set[str]]:
    """Install an archive without dependencies into a new environment.

    Returns:
        The folder of its commands, and the added files.
    """
    call(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    python = commands / "python"
    before = set(json.loads(call(python, "-c", LIST, cwd=folder)))
    pip(commands, "--no-deps", "--no-compile", archive)
    added = set(json.loads(call(python, "-c", LIST, cwd=folder))) - before
    tops = {name.split("/")[0] for name in added}
    assert len(tops) == 3, sorted(tops)  # both packages and their dist-info
    assert {"toolkit", "keras_toolkit"} < tops, sorted(tops)
    return commands, added


def pip(commands: Path, *arguments: object) -> None:
    """Install with the pip of an environment."""
    command = (commands / "python", "-m", "pip", "install", "-q")
    call(*command, "--disable-pip-version-check", *arguments, cwd=commands)


def complete(commands: Path, wheel: Path) -> None:
    """Install the dependencies, and an extra with the command that messages contain."""
    pip(commands, wheel)
    command = "from toolkit.release import install_command as f; print(f('workers'))"
    text = call(commands / "python", "-c", command, cwd=commands.parent)
    pip(commands, *shlex.split(text)[2:])
    call(commands / "python", "-c", "import cloudpickle", cwd=commands.parent)


def readme_code() -> str:
    """Return the first Python code of the README."""
    text = (ROOT / "README.md").read_text("utf-8")
    return re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]  # type: ignore[index]


def use(commands: Path, folder: Path) -> None:
    """Train, plot, save and inspect, in an empty folder."""
    toolkit, python = commands / "toolkit", commands / "python"
    lines = readme_code()
    where = call(python, "-c", "import toolkit; print(toolkit.__file__)", cwd=folder)
    assert str(commands.parent) in where, where
    assert "numpy (in use)" in call(toolkit, "info", cwd=folder)
    assert "\ndigits_cnn " in call(toolkit, "examples", cwd=folder)
    trained = call(toolkit, "run", "digits_cnn", cwd=folder).splitlines()
    print(trained[-1])
    assert float(re.findall(r"accuracy[ :=]+([01]\.\d+)", trained[-1])[0]) >= 0.98
    (folder / "mine.py").write_text(lines, "utf-8")
    call(python, "-W", "error", "mine.py", cwd=folder)
    assert (folder / "digits.svg").read_text("utf-8").startswith("<svg")
    shown = call(toolkit, "inspect", "digits.keras", cwd=folder)
    assert "a Keras 3 model" in shown and "Total params: 19,466" in shown
    call(toolkit, "plot", "digits.keras", "-o", "model.svg", cwd=folder)
    assert "<svg" in (folder / "model.svg").read_text("utf-8")
    call(toolkit, "convert", "digits.keras", "digits.weights.h5", cwd=folder)
    wrong = subprocess.run(
        [toolkit, "inspect", "digit.keras"], cwd=folder, capture_output=True, text=True
    )
    assert wrong.returncode == 1 and "did you mean 'digits.keras'?" in wrong.stderr


def main() -> None:
    """Run the test in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        wheel, sdist = build(folder / "dist")
        _, from_sources = install(sdist, folder / "from_sources")
        commands, files = install(wheel, folder / "environment")
        assert from_sources == files, from_sources ^ files
        complete(commands, wheel)
        use(commands, folder / "empty")
    print("newcomer: passed")


if __name__ == "__main__":
    main()
