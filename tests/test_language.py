"""The words of code and documents follow docs/glossary.md."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LANGUAGE = runpy.run_path(str(ROOT / "scripts" / "language"))

# Constructions per 10,000 words, bad names per 10,000 names, long sentences in percent.
PROSE, NAMES, LONG = 25, 30, 2
# Folders above a limit, and their counts. A change may lower a count, not raise it.
PROSE_ABOVE: dict[str, int] = {}
NAMES_ABOVE: dict[str, int] = {
    "toolkit/inspection": 38,  # the public parameter `what` of `Inspection.plot`
}


@pytest.fixture(scope="module")
def counts():
    return LANGUAGE["count_tree"]()


def test_no_folder_gets_more_constructions(counts):
    prose = {name: count.prose for name, count in counts.items()}
    above = {n: round(c) for n, c in prose.items() if c > PROSE_ABOVE.get(n, PROSE)}
    assert above == {}, "scripts/language FOLDER prints the matches"


def test_no_folder_gets_more_bad_names(counts):
    names = {name: count.bad for name, count in counts.items()}
    above = {n: round(c) for n, c in names.items() if c > NAMES_ABOVE.get(n, NAMES)}
    assert above == {}, "scripts/language FOLDER prints the matches"


def test_bounds_follow_the_counts(counts):
    """A bound that is far above its count allows the count to grow again."""
    for bounds, field in ((PROSE_ABOVE, "prose"), (NAMES_ABOVE, "bad")):
        measured = {name: getattr(counts[name], field) for name in bounds}
        loose = {n: round(c) for n, c in measured.items() if bounds[n] > c + 20}
        assert loose == {}, "lower the bounds to these counts"


def test_sentences_are_short(counts):
    long = {name: round(count.long, 1) for name, count in counts.items()}
    assert {name: share for name, share in long.items() if share > LONG} == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Return the offset of a row.", 0),
        ("It reads what is stored there.", 1),
        ("What does the pass rewrite?", 0),
        ("The value is kept behind those of the others.", 3),
        ("A turn of the loop comes here.", 2),
    ],
)
def test_constructions_are_counted(text, number):
    assert LANGUAGE["count_prose"](text)[0] == number


def test_names_are_counted(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("def made(found):\n    offset = found\n    return offset\n")
    count = LANGUAGE["count_module"](path)
    assert (count.bad_names, count.names) == (2, 3)
