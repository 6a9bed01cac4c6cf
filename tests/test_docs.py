"""The pages of docs: every example does what the page says."""

import doctest
import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parents[1] / "docs").glob("*.md"))
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(r"^```python\n(?=>>> )(.*?)^```", re.MULTILINE | re.DOTALL)


def examples(text):
    """The page's sessions as one, with the numbers of lines that they have there."""
    kept = [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        lines = block[1].splitlines()
        kept[first : first + len(lines)] = lines
    return "\n".join(kept)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_a_page(page):
    text = examples(page.read_text("utf-8"))
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    problems = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=problems.append)
    assert not problems, "".join(problems)


def test_the_compiler_is_demonstrated():
    page = next(page for page in PAGES if page.stem == "graphs")
    assert examples(page.read_text("utf-8")).count(".inspect(") >= 6
