"""scripts/same_code accepts new words and names, and refuses another behaviour."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "same_code"
MODULE = '''"""Count."""
import math

LIMIT = 3


def made(found, told=1):
    # a comment
    kept = [x for x in found if x < LIMIT]
    return math.fsum(kept) + told


class Held:
    here = 1

    def value(self):
        return self.here
'''
CALLER = """from module import Held, made

print(made([1], told=2), Held().here)
"""


@pytest.fixture
def compare(tmp_path):
    def run(*changes):
        for name, texts in (("before", ()), ("after", changes)):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
            for path, text in (("module.py", MODULE), ("caller.py", CALLER)):
                for old, new in texts:
                    text = text.replace(old, new)
                (folder / path).write_text(text)
        command = [sys.executable, SCRIPT, tmp_path / "before", tmp_path / "after"]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.stderr == ""
        return result.returncode == 0, result.stdout

    return run


def test_comments_and_docstrings_may_change(compare):
    equal, text = compare(("# a comment", "# another"), ('"""Count."""', '"""Sum."""'))
    assert equal
    assert "renamed: 0" in text


def test_consistent_names_may_change(compare):
    equal, text = compare(
        ("made", "sum_values"),
        ("found", "values"),
        ("told", "offset"),
        ("kept", "small"),
        ("here", "context"),
        ("Held", "Holder"),
    )
    assert equal, text
    assert "name: module.made -> sum_values" in text
    assert "attribute: here -> context" in text


@pytest.mark.parametrize(
    "change",
    [
        ("x < LIMIT", "x <= LIMIT"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("+ told", "+ found"),
        ("kept = [x", "LIMIT = [x"),
        ("import math\n", "import cmath as math\n"),
        ("math.fsum(kept)", "len(kept)"),
        ("told=2", "value=2"),
        ("return self.here", "return self"),
    ],
)
def test_another_behaviour_is_refused(compare, change):
    equal, text = compare(change)
    assert not equal
    assert "DIFFERENT" in text


def test_a_changed_string_is_printed(compare):
    equal, text = compare(("return self.here", "return 'a'"))
    assert not equal


@pytest.mark.parametrize(
    ("public", "reader", "is_equal"),
    [
        ("sum_up as sum_up", "sum_up", True),
        ("sum_up as made", "made", True),
        ("sum_up as made", "sum_up", False),
        ("sum_up as sum_up", "made", False),
    ],
)
def test_a_reexported_name_follows_its_definition(tmp_path, public, reader, is_equal):
    before = MODULE, "made as made", "made"
    after = MODULE.replace("def made", "def sum_up"), public, reader
    for folder, (module, exported, name) in (("before", before), ("after", after)):
        (tmp_path / folder).mkdir()
        subprocess.run(["git", "init", "-q"], cwd=tmp_path / folder, check=True)
        texts = {
            "module.py": module,
            "public.py": f"from module import {exported}\n",
            "reader.py": f"from public import {name}\n\nprint({name}([1]))\n",
        }
        for path, text in texts.items():
            (tmp_path / folder / path).write_text(text)
    command = [sys.executable, SCRIPT, tmp_path / "before", tmp_path / "after"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stderr == ""
    assert (result.returncode == 0) == is_equal, result.stdout
