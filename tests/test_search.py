"""The search of the site leads to the guide for the words that users of Keras type."""

import html
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.pictures.browser import CHROMIUM, OPTIONS, needs_chromium

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "docs"
INDEX = SITE / "searchindex.js"

pytestmark = pytest.mark.skipif(
    not DOCS.is_dir(), reason="the pages are in checkouts only"
)

# The words of a search, and the page that has to be among the first three results.
PAGES = {
    "augmentation": "guides/images",
    "checkpoint": "guides/saving",
    "class weight": "guides/tables",
    "csv": "guides/tables",
    "custom callback": "guides/callbacks",
    "custom layer": "guides/making_layers",
    "custom loss": "guides/custom_losses",
    "custom metric": "guides/custom_losses",
    "custom training loop": "guides/training",
    "distributed training": "guides/distribution",
    "early stopping": "guides/callbacks",
    "fine-tuning": "guides/images",
    "functional api": "guides/functional_api",
    "gpu": "guides/gpus",
    "gradient clipping": "guides/training",
    "grid search": "guides/hyperparameters",
    "hyperparameter": "guides/hyperparameters",
    "image classification": "guides/images",
    "installation": "guides/installation",
    "learning rate schedule": "guides/training",
    "load weights": "guides/saving",
    "lora": "guides/pretrained_models",
    "lstm": "guides/recurrent",
    "masking": "guides/masking",
    "mixed precision": "guides/mixed_precision",
    "model subclassing": "guides/subclassed_models",
    "multi gpu": "guides/distribution",
    "onnx": "guides/onnx",
    "optuna": "guides/hyperparameters",
    "overfitting": "guides/debugging",
    "pandas": "guides/tables",
    "pytorch": "migrating/pytorch",
    "quantization": "guides/quantization",
    "save model": "guides/saving",
    "sequential model": "guides/sequential_model",
    "structured data": "guides/tables",
    "tensorboard": "guides/debugging",
    "text classification": "guides/text_classification",
    "text generation": "guides/generation",
    "tf.data": "guides/pipelines",
    "time series": "guides/recurrent",
    "transfer learning": "guides/images",
}

# Searches without an entry in the index: words of titles, headings and texts.
OTHER = {
    "augment images": "guides/images",
    "convert weights from torch": "guides/weights",
    "dataframe of numbers": "guides/tables",
    "freeze layers": "guides/images",
    "grid search scikit-learn": "guides/hyperparameters",
    "http server": "guides/serving",
    "int4 weights": "guides/quantization",
    "lstm text": "guides/text_classification",
    "shuffle buffer": "guides/pipelines",
    "vanishing gradients": "guides/debugging",
}

LETTERS = 4  # "clip" is a match of "clipping", as in the search of Sphinx


def words_of_pages():
    return tomllib.loads((DOCS / "search_words.toml").read_text("utf-8"))


def test_each_page_contains_its_words():
    for page, phrases in words_of_pages().items():
        text = (DOCS / f"{page}.md").read_text("utf-8").lower()
        for phrase in phrases:
            words = re.findall(r"\w+", phrase)
            unmatched = [word for word in words if word[:LETTERS] not in text]
            assert not unmatched, (page, phrase, unmatched)


def test_words_lead_to_one_page():
    """An entry of the index that equals the words is before all other results."""
    entries = [
        (phrase, page) for page, words in words_of_pages().items() for phrase in words
    ]
    pages = dict(entries)
    assert len(pages) == len(entries)
    assert {phrase: pages.get(phrase) for phrase in PAGES} == PAGES
    assert len(PAGES) == 42


# --- the built site -------------------------------------------------------------------

# Runs the search of Sphinx for several words, in the scripts of the site.
HARNESS = """<!DOCTYPE html><meta charset="utf-8"><base href="%s/">
<script>
const _ready = () => {}, _ = (text) => text, SPHINX_HIGHLIGHT_ENABLED = false;
</script>
<script src="_static/language_data.js"></script>
<script src="_static/searchtools.js"></script>
<script>Search.setIndex = (index) => { Search._index = index; };</script>
<script src="searchindex.js"></script>
<pre id="results"></pre>
<script>
const search = (words) =>
  Search._performSearch(...Search._parseQuery(words)).reverse().map((row) => row[0]);
const results = Object.fromEntries(%s.map((words) => [words, search(words)]));
document.getElementById("results").textContent = JSON.stringify(results);
</script>"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return the pages of each search, best first."""
    folder = tmp_path_factory.mktemp("search")
    page = folder / "harness.html"
    words = json.dumps([*PAGES, *OTHER])
    page.write_text(HARNESS % (SITE.as_uri(), words), "utf-8")
    profile = f"--user-data-dir={folder}/profile"
    process = subprocess.run(
        [CHROMIUM, *OPTIONS, profile, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    match = re.search(r'<pre id="results">(.*?)</pre>', process.stdout, re.DOTALL)
    assert match and match[1], process.stderr
    return json.loads(html.unescape(match[1]))


@pytest.mark.slow
@needs_chromium
@pytest.mark.skipif(not INDEX.exists(), reason="build/docs does not contain the site")
@pytest.mark.parametrize("words, page", [*PAGES.items(), *OTHER.items()])
def test_search_finds_the_guide(words, page, results):
    first = list(dict.fromkeys(results[words]))[:3]
    assert page in first
