"""Test galleries, saved with matplotlib if it is installed."""

import sys

import numpy as np
import pytest

from toolkit import visualization

IMAGES = np.zeros((5, 40, 40, 3))
BOXES = {"boxes": np.full((5, 1, 4), 9.0), "labels": np.zeros((5, 1))}


def test_missing_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    with pytest.raises(ImportError, match="needs the `matplotlib` package"):
        visualization.plot_image_gallery(IMAGES)


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is missing")
    matplotlib.use("agg")
    return pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def figures_shown(pyplot, monkeypatch):
    """Return the displayed figures: (images, titles)."""
    figures = []

    def show():
        axes = pyplot.gcf().axes
        images = [axis.images[0].get_array() for axis in axes if axis.images]
        figures.append((images, [axis.get_title() for axis in axes], pyplot.gcf()))

    monkeypatch.setattr(pyplot, "show", show)
    return figures


@pytest.mark.filterwarnings("ignore")
def test_images(figures_shown, tmp_path, pyplot):
    visualization.plot_image_gallery(IMAGES + 1, [1] * 5, [0] * 5, {1: "a"}, cols=2)
    images, titles, _ = figures_shown.pop()
    assert len(images) == 5 and len(titles) == 6
    assert titles[0] == "Label: a\nPred: Unknown"
    path = tmp_path / "g.png"
    visualization.plot_image_gallery(IMAGES, value_range=(-1, 1), path=path)
    assert (
        path.read_bytes()[1:4] == b"PNG"
        and not figures_shown
        and not pyplot.get_fignums()
    )
    visualization.plot_image_gallery(IMAGES, value_range=(-1, 1))
    assert figures_shown.pop()[0][0].max() == 127
    with pytest.raises(ValueError, match="either `path`"):
        visualization.plot_image_gallery(IMAGES, path="a", show=True)
    with pytest.raises(ValueError, match="label_map"):
        visualization.plot_image_gallery(IMAGES, [1] * 5)


@pytest.mark.filterwarnings("ignore")
def test_titles_fit_and_wrong_predictions_have_another_color(figures_shown):
    names = {0: "automobile of the year", 1: "aeroplane"}
    visualization.plot_image_gallery(IMAGES, [0, 1, 0, 1, 0], [0] * 5, names, scale=1)
    _, titles, figure = figures_shown.pop()
    assert titles[1] == "Label:\naeroplane\nPred:\nautomobile of\nthe year"
    colors = [axis.title.get_color() for axis in figure.axes[:5]]
    assert colors[0] == colors[2] != colors[1] == colors[3]
    figure.canvas.draw()
    for axis in figure.axes[:5]:
        extent = axis.title.get_window_extent()
        assert extent.width <= 1.1 * figure.dpi


@pytest.mark.filterwarnings("ignore")
def test_boxes(figures_shown):
    visualization.plot_bounding_box_gallery(
        IMAGES, "xyxy", BOXES, BOXES, legend=True, class_mapping={0: "a"}
    )
    images, _, figure = figures_shown.pop()
    assert images[0].max() == 255
    assert [t.get_text() for t in figure.legends[0].texts] == [
        "Ground Truth",
        "Prediction",
    ]
    with pytest.raises(ValueError, match="only pass `legend`"):
        visualization.plot_bounding_box_gallery(
            IMAGES, "xyxy", legend=True, legend_handles=[1]
        )


@pytest.mark.filterwarnings("ignore")
def test_masks(figures_shown):
    masks = np.ones((5, 1, 40, 40))
    visualization.plot_segmentation_mask_gallery(
        np.moveaxis(IMAGES, -1, 1), 1, y_true=masks, data_format="channels_first"
    )
    images, titles, _ = figures_shown.pop()
    assert len(titles) == 10
    assert images[0].max() == 0 and images[1].max() > 0
