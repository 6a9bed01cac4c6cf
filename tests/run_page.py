"""Run the code of a documentation page, from top to bottom, in an empty folder.

    python tests/run_page.py README.md

Blocks of ```python run as they are, and blocks that start with `>>> ` run as doctests.
They share one namespace. Blocks of ```sh run in a shell, where `toolkit`, `python` and
their names in `.venv/bin` mean this interpreter. Blocks of ```text are not code. A
comment before a block changes this: `<!-- slow -->` runs it only with --slow, and
`<!-- not run: REASON -->` never runs it. `<!-- needs TOOL -->` runs it only if the
program is installed. A block of ```c after `<!-- file: NAME -->` is written to that
file. The runner also reads code in plain fences
inside directives of MyST, such as ```{note}. Any other block is an error.
"""

import argparse
import doctest
import linecache
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NOT_CODE = {"text"}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_BLOCK = re.compile(
    r"(?:^<!-- (?P<comment>[^\n]*) -->\n\n?)?"
    r"^(?P<fence>```+)(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_REASON = re.compile("not run: .+")
_FILE = re.compile("^file: (.+)$")
_TOOL = re.compile("^needs (.+)$")


class Block(NamedTuple):
    """A block of code.

    Attributes:
        language, code, line: its language, text and first line.
        slow: whether it is slow.
        file: the file to write it to, or "".
        tool: the program that it needs, or "".
    """

    language: str
    code: str
    line: int
    slow: bool
    file: str = ""
    tool: str = ""

    @property
    def padded(self) -> str:
        """Return the code on the same lines as in the page, for tracebacks."""
        return "\n" * (self.line - 1) + self.code


def blocks(text: str, before: int = 0) -> list[Block]:
    """Return the runnable blocks of a page; `before` lines precede the text."""
    code_blocks = []
    for match in _BLOCK.finditer(text):
        line = before + text.count("\n", 0, match.start("code")) + 1
        language, comment = match["language"], match["comment"] or ""
        if language in NOT_CODE or _REASON.fullmatch(comment):
            continue
        if language.startswith("{") and "code" not in language:
            code_blocks += blocks(match["code"], line - 1)
            continue
        file = "".join(_FILE.findall(comment))
        tool = "".join(_TOOL.findall(comment))
        if language not in ("python", "sh") and not file:
            raise ValueError(f"line {line - 1}: cannot run a block of {language!r}")
        slow = comment == "slow"
        code_blocks.append(Block(language, match["code"], line, slow, file, tool))
    return code_blocks


def run(block: Block, page: Path, names: dict[str, Any]) -> None:
    """Run a block in the current folder of the process."""
    if block.tool and shutil.which(block.tool) is None:
        print(f"skipped: {block.tool} is not installed")
    elif block.file:
        Path(block.file).write_text(block.code, encoding="utf-8")
    elif block.language == "sh":
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.code], check=True, timeout=600
        )
    elif block.code.startswith(">>> "):
        test = doctest.DocTestParser().get_doctest(
            block.padded, names, page.name, str(page), 0
        )
        problems: list[str] = []
        runner = doctest.DocTestRunner(optionflags=OPTIONS)
        runner.run(test, out=problems.append, clear_globs=False)
        names.update(test.globs)
        if problems:
            raise AssertionError("".join(problems))
    else:
        # Make the source of a function available, as a notebook does.
        lines = block.padded.splitlines(keepends=True)
        linecache.cache[str(page)] = len(block.padded), None, lines, str(page)
        exec(compile(block.padded, str(page), "exec"), names)


def make_commands(folder: Path) -> str:
    """Make `toolkit` and `python` run this interpreter; return the PATH for them."""
    commands = folder / ".venv" / "bin"
    commands.mkdir(parents=True)
    for name, options in (("toolkit", "-m toolkit "), ("python", "")):
        script = commands / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options}"$@"\n')
        script.chmod(0o755)
    return f"{commands}{os.pathsep}{os.environ['PATH']}"


def main() -> None:
    """Run a page in this process, in the current folder, which should be empty."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=lambda text: Path(text).resolve())
    parser.add_argument("--slow", action="store_true", help="slow blocks too")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["PATH"] = make_commands(Path.cwd())
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(options.page.read_text("utf-8")):
        if options.slow or not block.slow:
            print(f"--- {options.page.name}, line {block.line}", flush=True)
            run(block, options.page, names)


if __name__ == "__main__":
    main()
