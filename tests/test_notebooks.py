"""Tests of the notebooks and the gallery that scripts/notebooks makes of examples."""

import ast
import base64
import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / "scripts" / "notebooks").exists(), reason="checkouts only"
)

SCRIPT = '''"""Draw a line with `toolkit`.

    python line.py --epochs 2

The second paragraph.
"""

import argparse
from pathlib import Path

import numpy as np

# The width.
WIDTH = 3
HEIGHT = WIDTH + 1


def area():
    """Return the area."""
    return WIDTH * HEIGHT


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args(arguments)
    Path("trained").mkdir()
    Path("trained/line.svg").write_text("<svg>line</svg>")
    print(f"epochs {options.epochs}")
    print(f"test area {area()}")


if __name__ == "__main__":
    main()
'''


@pytest.fixture(scope="module")
def tools():
    return runpy.run_path(str(ROOT / "scripts" / "notebooks"))


@pytest.fixture(scope="module")
def notebook(tools):
    cells = tools["split_script"](SCRIPT, ["--epochs", "2"])
    return tools["to_notebook"]("line", cells, tools["run_cells"]("line", cells), "0")


def sources(notebook, kind="code"):
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == kind]
    return ["".join(cell["source"]) for cell in cells]


def test_script_becomes_cells(tools):
    cells = tools["split_script"](SCRIPT, [])
    assert cells[0] == (
        "markdown",
        "Draw a line with `toolkit`.\n\n    python line.py --epochs 2\n\n"
        "The second paragraph.",
    )
    starts = [cell.text.splitlines()[0] for cell in cells[1:]]
    assert starts == [
        "import argparse",
        "# The width.",
        "def area():",
        "def main(arguments=None):",
        "main([])",
    ]


def test_notebook_has_the_format_of_jupyter(notebook):
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"].keys() == {
        *("display_name", "language", "name")
    }
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    assert all(re.fullmatch(r"[\w-]{1,64}", text) for text in identifiers)
    for cell in notebook["cells"]:
        expected = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            expected |= {"outputs", "execution_count"}
            assert isinstance(cell["execution_count"], int)
            for output in cell["outputs"]:
                assert output.keys() == {"output_type", "name", "text"}
        assert expected <= cell.keys() <= expected | {"attachments"}
        for contents in cell.get("attachments", {}).values():
            assert all(base64.b64decode(t, validate=True) for t in contents.values())
        assert all(isinstance(line, str) for line in cell["source"])
    assert json.loads(json.dumps(notebook)) == notebook


def test_outputs_are_those_of_a_run(notebook, tools):
    *_, last = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert last["source"] == ["main(['--epochs', '2'])"]
    assert last["outputs"][0]["text"] == ["epochs 2\n", "test area 12\n"]
    assert notebook["metadata"]["toolkit"]["result"] == "test area 12"
    assert tools["picture_of"](notebook) == ("line.svg", b"<svg>line</svg>")


def test_code_of_a_notebook_is_the_code_of_its_script(tools):
    for name in tools["example_names"]():
        text = (ROOT / "examples" / f"{name}.py").read_text("utf-8")
        cells = tools["split_script"](text, tools["ARGUMENTS"].get(name, []))
        code = [cell.text for cell in cells if cell.kind == "code"]
        original = ast.parse(text)
        body = [n for n in original.body[1:] if not isinstance(n, ast.If)]
        statements = ast.parse("\n".join(code)).body
        assert len(body) <= len(statements) <= len(body) + 1, name
        for a, b in zip(body, statements, strict=False):
            assert ast.dump(a) == ast.dump(b), name
        assert "__name__" not in code[-1], name


def test_every_example_is_in_the_gallery(tools):
    names = tools["example_names"]()
    assert {"digits_cnn", "keras_style/gan", "ten_lines/text"} <= set(names)
    assert tools["ARGUMENTS"].keys() <= set(names)


def test_a_script_without_a_picture_gets_curves(tools):
    code = (
        "import numpy as np\nimport toolkit as tk\n\n"
        "model = tk.Sequential([tk.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=3, verbose=0)\n"
    )
    cells = tools["split_script"](f'"""Fit."""\n\n{code}', [])
    name, data = tools["run_cells"]("fit", cells).picture
    assert name == "curves.svg" and data.startswith(b"<svg")


def test_result_is_the_last_line_without_times(tools):
    lines = "Epoch 5/5\n139/139 - 16s - 112ms/step - loss: 0.86 - val_loss: 1.79\n"
    results = [tools["Run"]([text], None, 1.0).result for text in (lines, "7/8 - a\n")]
    assert results == ["loss: 0.86 - val_loss: 1.79", "7/8 - a"]


def test_a_failed_cell_is_an_error_with_the_name_of_the_example(tools):
    cells = tools["split_script"]('"""Fail."""\n\nprint(1)\n1 / 0\n', [])
    with pytest.raises(RuntimeError, match=r"(?s)^broken: .*ZeroDivisionError"):
        tools["run_cells"]("broken", cells)


def test_page_has_the_result_the_picture_and_the_code(tools, notebook):
    page = tools["to_page"]("line", notebook)
    assert page.startswith("Draw a line with ``toolkit``\n====")
    assert ".. code-block:: sh\n\n   python line.py --epochs 2\n" in page
    assert ":download:`line.ipynb <line.ipynb>`" in page
    assert "   .. image:: line.svg\n      :alt: Draw a line with toolkit: the" in page
    assert "   def area():\n" in page
    assert page.count("   test area 12") == 2  # as the result, and in the output


def test_long_outputs_are_shortened_on_a_page(tools, notebook):
    changed = json.loads(json.dumps(notebook))
    changed["cells"][-2]["outputs"][0]["text"] = [f"line {i}\n" for i in range(100)]
    page = tools["to_page"]("line", changed)
    assert "line 0\n" in page and "line 99\n" in page and "line 50\n" not in page


def test_gallery_has_a_card_for_each_example(tools, notebook):
    text = tools["to_gallery"]({"line": notebook, "ten_lines/other": notebook})
    assert text.count(".. container:: card") == 2
    assert ":doc:`Draw a line with toolkit <line>`" in text
    assert ".. image:: ten_lines/other.svg" in text
    assert text.count("``test area 12``") == 2
    assert text.endswith("   line\n   ten_lines/other\n")


def test_pages_are_written_once_for_a_script(tools, tmp_path):
    build = tools["build"]
    first = build("ten_lines/gradient", tmp_path, is_run=False)
    assert sources(first)[-1].startswith("tk.utils.set_random_seed")
    path = tmp_path / "ten_lines" / "gradient.ipynb"
    assert json.loads(path.read_text()) == first
    before = path.stat().st_mtime_ns
    assert build("ten_lines/gradient", tmp_path, is_run=False) == first
    assert path.stat().st_mtime_ns == before
    assert "result" in build("ten_lines/gradient", tmp_path)["metadata"]["toolkit"]
    assert (tmp_path / "ten_lines" / "gradient.rst").exists()
