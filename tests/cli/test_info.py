"""Tests of `info`, `examples` and `run`."""

import ast
import tomllib
from pathlib import Path

import pytest

import toolkit
from toolkit import cli
from toolkit.cli import examples, info

ROOT = Path(toolkit.__file__).resolve().parents[1]


def test_info_shows_versions_backends_caches(tmp_path, monkeypatch, capsys):
    cache = tmp_path / "home" / "jit"
    cache.mkdir(parents=True, mode=0o700)
    (cache / "code").write_bytes(b"x" * 2048)
    (tmp_path / "home" / "data").write_bytes(b"x" * 1024)
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TOOLKIT_CACHE_DIR", raising=False)
    assert cli.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(
        line.split()[:2] == ["toolkit", f"{toolkit.__version__},"] for line in lines
    )
    assert any("numpy (in use)" in line and "blas" in line for line in lines)
    assert any(f"2.00 KB in 1 files, {cache}" in line for line in lines)
    assert any("1.00 KB in 1 files" in line for line in lines)


def test_info_shows_missing_packages_and_their_installation(monkeypatch, capsys):
    monkeypatch.setattr(info, "find_spec", lambda name: None)
    monkeypatch.setattr(
        info, "list_gpus", lambda: ["NVIDIA H200, 143771 MiB, 580.95.05"]
    )
    assert cli.main(["info"]) == cli.FAILED  # a required package is missing
    printed = capsys.readouterr().out
    assert 'is required: pip install "llvmlite"' in printed
    assert "  cuda13 " in printed and "  cuda12 " not in printed
    for extra in info.EXTRAS.keys() - {"cuda12"}:
        assert f"  {extra} " in printed
    absent = printed[printed.index("Not installed") :]
    assert absent.count("pip install") == len(info.REQUIRED) + len(info.EXTRAS) - 1


def test_info_of_an_installed_package_shows_pip_commands(monkeypatch, capsys):
    requirements = [
        "numpy>=2.1",
        "mkl>=2024.2; extra == 'mkl'",
        'onnx>=1.17; extra == "onnx"',
    ]
    monkeypatch.setattr(info, "requires", lambda name: requirements)
    monkeypatch.setattr(info, "find_spec", lambda name: None)
    cli.main(["info"])
    assert 'pip install "mkl>=2024.2"' in capsys.readouterr().out


@pytest.mark.parametrize(
    "driver, extra", [("580.95.05", "cuda13"), ("570.86.10", "cuda12"), (None, None)]
)
def test_gpu_driver_selects_the_extra(driver, extra, monkeypatch, capsys):
    devices = [] if driver is None else [f"NVIDIA A100, 40960 MiB, {driver}"]
    monkeypatch.setattr(info, "list_gpus", lambda: devices)
    monkeypatch.setattr(info, "find_spec", lambda name: None)
    cli.main(["info"])
    printed = capsys.readouterr().out
    shown = [name for name in ("cuda12", "cuda13") if f"  {name} " in printed]
    assert shown == ([extra] if extra else [])


@pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="the project file is in checkouts"
)
def test_info_lists_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    # No feature for users needs onnx and nccl yet.
    extras = project["optional-dependencies"].keys() - {"onnx", "nccl"}
    assert extras == info.EXTRAS.keys()
    assert all(
        any(d.startswith(n) for d in project["dependencies"]) for n in info.REQUIRED
    )


def test_examples_are_listed_with_a_line_each(capsys):
    assert cli.main(["examples"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = dict(line.split(None, 1) for line in lines[:-2])
    assert list(listed) == examples.list_examples()
    assert {"digits_cnn", "keras_style/gan"} <= listed.keys()
    assert all(text.endswith(".") for text in listed.values())


def test_example_source_is_shown(capsys):
    assert cli.main(["examples", "digits_mlp"]) == 0
    source = capsys.readouterr().out
    assert source == examples.example_path("digits_mlp").read_text("utf-8")
    assert ast.get_docstring(ast.parse(source))


def test_run_trains(capsys):
    assert cli.main(["run", "logistic_regression", "--epochs", "1"]) == 0
    assert "test accuracy" in capsys.readouterr().out
