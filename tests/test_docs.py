"""Tests of the documentation: all examples run and show the output of the page."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.run_page import blocks
from toolkit.release import DISTRIBUTION, VERSION

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="the pages are in checkouts only"),
    pytest.mark.skipif(os.name != "posix", reason="the pages are for a shell"),
]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def has(page, slow):
    return any(block.slow == slow for block in blocks(page.read_text("utf-8")))


def run(page, folder, *options):
    """Run a page in a temporary folder, in a process where warnings are errors."""
    folder.mkdir(exist_ok=True)
    script = ROOT / "tests" / "run_page.py"
    process = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(page), *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return process.returncode, process.stdout + process.stderr


@pytest.mark.parametrize(
    "page", [page for page in PAGES if has(page, slow=False)], ids=name_of
)
def test_a_page_runs(page, tmp_path):
    code, printed = run(page, tmp_path)
    assert code == 0, printed


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if has(page, slow=True)], ids=name_of
)
def test_a_page_runs_with_slow_blocks(page, tmp_path):
    code, printed = run(page, tmp_path, "--slow")
    assert code == 0, printed


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_is_fenced_and_files_exist(page):
    text = page.read_text("utf-8")
    prose = re.sub(r"^(```+).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not [line for line in prose.splitlines() if line.startswith("    ")]
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
        assert (page.parent / target).exists(), target
    for picture in re.findall(r"\]\(([^)]+\.svg)\)", prose):
        root = ElementTree.parse(page.parent / picture).getroot()
        assert root.tag.endswith("svg")


def test_the_site_lists_every_page():
    docs = ROOT / "docs"
    listed = (docs / "index.md").read_text("utf-8").splitlines()
    pages = {p.relative_to(docs).with_suffix("").as_posix() for p in docs.rglob("*.md")}
    assert pages - set(listed) == {"index"}


def test_the_installation_page_lists_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (ROOT / "docs/guides/installation.md").read_text("utf-8")
    table = page.partition("\n## Extras\n")[2].partition("\n## ")[0]
    extras = {
        name
        for name in project["optional-dependencies"]
        if name not in ("docs", "test") and not name.startswith("ci-")
    }
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == extras
    assert project["name"] in page


def test_the_compiler_is_demonstrated():
    text = (ROOT / "docs" / "graphs.md").read_text("utf-8")
    assert "".join(b.code for b in blocks(text)).count(".inspect(") >= 6


# --- README ---------------------------------------------------------------------------

README = (ROOT / "README.md").read_text("utf-8") if PAGES else ""


def test_the_readme_starts_with_two_commands():
    set_up, test = re.findall(r"^```sh\n(.*?)^```", README, re.M | re.S)[0].splitlines()
    assert "venv" in set_up and set_up.endswith("examples/digits_cnn.py")
    assert "pytest" in test


def test_readme_code_has_twelve_lines_and_an_image():
    first = next(b for b in blocks(README) if b.language == "python")
    assert len([line for line in first.code.splitlines() if line]) == 12
    assert re.search(r"!\[[^]]+\]\(docs/images/\w+\.svg\)", README)


def test_readme_fits_one_and_a_half_screens():
    assert len(README.splitlines()) <= 85


def test_readme_first_installs_the_package_for_users():
    first = re.search(r"^```\w+\n(.*?)^```", README, re.M | re.S)[1].splitlines()
    assert first[0].startswith("pip install .  ")
    wheel = f"{DISTRIBUTION.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    assert first[1].split()[:3] == ["pip", "install", wheel]


def test_readme_times_match_the_benchmarks():
    measured = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    rows = [line for line in README.splitlines() if line.startswith("| ")]
    compared = [row.split("|")[1:-1] for row in rows if re.search(r"\d", row)]
    assert len(compared) >= 5
    measured = re.sub(r" ±\d+%", "", measured)
    for name, *cells in compared:
        line = next(m for m in measured.splitlines() if m.startswith(f"|{name}|"))
        for cell in cells:
            assert f"|{cell}|".replace("**", "") in line, (name, cell)


# --- the page runner ------------------------------------------------------------------

GOOD = """
```python
x = 1
```

```python
>>> x + 1
2

```

<!-- not run: there is no such thing -->
```sh
false
```

```text
anything
```

<!-- slow -->
```python
open("slow", "w").close()
```

```sh
toolkit --version > version
.venv/bin/python -c 'print(1)'
```
"""


def test_blocks_run_in_order_and_share_their_names(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(GOOD)
    assert [block.slow for block in blocks(GOOD)] == [False, False, True, False]
    code, printed = run(page, tmp_path / "folder", "--slow")
    assert code == 0, printed
    assert (tmp_path / "folder" / "version").read_text().startswith("toolkit ")
    assert (tmp_path / "folder" / "slow").exists()


def test_a_block_of_c_is_written_to_its_file(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- file: main.c -->\n```c\nint x;\n```\n\n"
        "```sh\ntest \"$(cat main.c)\" = 'int x;'\n```\n"
    )
    code, printed = run(page, tmp_path / "folder")
    assert code == 0, printed


@pytest.mark.parametrize("tool, runs", [("sh", True), ("no-such-tool", False)])
def test_a_block_that_needs_a_tool(tool, runs, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"<!-- needs {tool} -->\n```sh\ntouch file\n```\n")
    code, printed = run(page, tmp_path / "folder")
    assert code == 0, printed
    assert (tmp_path / "folder" / "file").exists() == runs
    assert ("no-such-tool is not installed" in printed) != runs


def test_directives_are_read():
    text = "a\n\n````{note}\n:class: b\n\n```python\nx = 1\n```\n````\n"
    assert [(b.code, b.line) for b in blocks(text)] == [("x = 1\n", 7)]
    assert blocks("```{toctree}\nfirst\nsecond\n```\n") == []
    with pytest.raises(ValueError, match="cannot run a block of '{code-block} python'"):
        blocks("```{code-block} python\nx = 1\n```\n")


def test_slow_block_is_skipped(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- slow -->\n```python\n1 / 0\n```\n")
    assert run(page, tmp_path / "fast")[0] == 0
    assert run(page, tmp_path / "slow", "--slow")[0] != 0


@pytest.mark.parametrize(
    "text, words",
    [
        ("```python\nx = 1 / 0\n```\n", "page.md, line 2"),
        ("```python\n>>> 1\n2\n\n```\n", "Expected:\n    2\nGot:\n    1"),
        ("```sh\nfalse\ntrue\n```\n", "returned non-zero exit status 1"),
        ("```c\nint x;\n```\n", "line 1: cannot run a block of 'c'"),
        ("```\nx = 1\n```\n", "line 1: cannot run a block of ''"),
        ("```python\nimport warnings; warnings.warn('w')\n```\n", "UserWarning: w"),
    ],
)
def test_failing_block_fails(text, words, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    code, printed = run(page, tmp_path / "folder")
    assert code != 0
    assert words in printed
