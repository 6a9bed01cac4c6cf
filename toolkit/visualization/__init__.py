"""Pictures of what models see: boxes and masks drawn on images, galleries of them.

Drawing is NumPy alone; galleries need matplotlib.
"""

from toolkit.visualization.drawing import draw_bounding_boxes, draw_segmentation_masks
from toolkit.visualization.galleries import (
    plot_bounding_box_gallery,
    plot_image_gallery,
    plot_segmentation_mask_gallery,
)

__all__ = [
    "draw_bounding_boxes",
    "draw_segmentation_masks",
    "plot_bounding_box_gallery",
    "plot_image_gallery",
    "plot_segmentation_mask_gallery",
]
