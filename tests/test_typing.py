"""Types that editors and type checkers show to users, as mypy reveals them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A statement -> the words of the error.
MISTAKES = {
    'layers.Dense(3, activaton="relu")': '"activaton" for "Dense"',
    "layers.LSTM(3, return_sequence=True)": '"return_sequence" for "LSTM"',
    "layers.GRU(3, bias=True)": '"bias" for "GRU"',
    "layers.SimpleRNN(3, units_=3)": '"units_" for "SimpleRNN"',
    "layers.LSTMCell(3, bias=True)": '"bias" for "LSTMCell"',
    "layers.MaxPooling2D(2, poolsize=3)": '"poolsize" for "MaxPooling2D"',
    "layers.AveragePooling1D(2, stride=3)": '"stride" for "AveragePooling1D"',
    "layers.Embedding(2, 3, outputdim=3)": '"outputdim" for "Embedding"',
    "layers.ConvLSTM2D(2, 3, filter=3)": '"filter" for',
    "layers.Hashing(3, bins=3)": '"bins" for "Hashing"',
    "layers.StringLookup(vocab=[])": '"vocab" for "StringLookup"',
    "layers.TextVectorization(tokens=3)": '"tokens" for "TextVectorization"',
    "layers.LeakyReLU(slope=3)": '"slope" for "LeakyReLU"',
    "optimizers.Adam(lr=0.1)": '"lr" for "Adam"',
    "optimizers.AdamW(decay=0.1)": '"decay" for "AdamW"',
    "optimizers.SGD(0.1, momentun=0.1)": '"momentun" for "SGD"',
    "optimizers.RMSprop(lr=0.1)": '"lr" for "RMSprop"',
    "model.fit(x, x, nb_epoch=3)": '"nb_epoch" for "fit"',
    "model.fit(x, x).histry": '"History" has no attribute "histry"',
    "layers.Conv2d(3, 3)": 'has no attribute "Conv2d"',
    "layers.Dense(3)(x).sum()": '"Tensor" has no attribute "sum"',
}
# An expression -> its type.
TYPES = {
    "model.fit(x, x)": "History",
    "model.fit(x, x).history": "dict[str, list[Any]]",
    "model.predict(x)": "ndarray[Any, Any]",
    "model.predict_on_batch(x)": "ndarray[Any, Any]",
    "toolkit.models.load_model('m.keras')": "Model",
    "toolkit.saving.load_model('m.keras')": "Model",
    "toolkit.models.load_model('m.keras').predict(x)": "ndarray[Any, Any]",
    "layers.Dense(3)(x)": "Tensor",
    "layers.Dense(3)(toolkit.Input((3,)))": "KerasTensor",
    "layers.LSTM(3)(toolkit.Input((3, 3)))": "KerasTensor",
    "layers.Add()([toolkit.Input((3,)), toolkit.Input((3,))])": "KerasTensor",
    "layers.Dense(3)(layers.Dense(3)(toolkit.Input((3,))))": "KerasTensor",
    "toolkit.Input((3,)) * 2 + 1": "KerasTensor",
    "toolkit.Input((3,))[:, 0]": "KerasTensor",
    "model(x)": "Tensor",
    "model(toolkit.Input((3,)))": "KerasTensor",
    "layers.Dense(3)(x)[0] + 1": "Tensor",
}
# Valid statements, which have no error.
VALID = (
    'layers.Dense(3, name="a", dtype="float32", trainable=False, input_shape=(3,))',
    "layers.LSTM(3, return_sequences=True, implementation=2)",
    'layers.MaxPooling2D(2, name="a", dtype="float32")',
    "layers.Embedding(2, 3, input_length=3)",
    'layers.TextVectorization(name="a", trainable=False)',
    'optimizers.Adam(0.1, clipnorm=1.0, weight_decay=0.1, name="a")',
    "optimizers.AdamW(0.1, weight_decay=0.1, use_ema=True)",
    "y, h, c = layers.LSTM(3, return_state=True)(toolkit.Input((3, 3)))",
    "a, b = model.predict(x)",
    "toolkit.Model(toolkit.Input((3,)), layers.Dense(3)(toolkit.Input((3,))))",
)
HEADER = (
    "import numpy as np",
    "import toolkit",
    "from toolkit import layers, optimizers",
    "x = np.ones((2, 3))",
    "model = toolkit.Sequential([layers.Dense(3)])",
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Return the report of mypy for each line of one script with all statements."""
    pytest.importorskip("mypy")
    lines = [*HEADER, *MISTAKES, *(f"reveal_type({x})" for x in TYPES), *VALID]
    path = tmp_path_factory.mktemp("typing") / "script.py"
    path.write_text("\n".join([*lines, ""]), "utf-8")
    command = [sys.executable, "-m", "mypy", "--no-implicit-reexport"]
    command += ["--follow-imports=silent", "--no-error-summary", str(path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    by_line = {}
    for number, text in re.findall(
        r"^[^\n]*script\.py:(\d+): (.*)$", process.stdout, re.M
    ):
        by_line.setdefault(lines[int(number) - 1], []).append(text)
    return by_line


@pytest.mark.parametrize("statement", MISTAKES)
def test_mistakes_are_reported(reports, statement):
    assert MISTAKES[statement] in " ".join(reports.get(statement, ["no error"]))


@pytest.mark.parametrize("expression", TYPES)
def test_results_have_types(reports, expression):
    text = " ".join(reports[f"reveal_type({expression})"])
    revealed = re.sub(r"\b(?:\w+\.)+", "", text)
    assert revealed == f'note: Revealed type is "{TYPES[expression]}"'


@pytest.mark.parametrize("statement", VALID)
def test_valid_statements_have_no_error(reports, statement):
    assert reports.get(statement, []) == []
