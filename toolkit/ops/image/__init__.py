"""Functions of images, with the names and signatures of `keras.ops.image`.

An image is (height, width, channels). Most functions also take a batch of images, and
channels first if `data_format` is "channels_first".
"""

from toolkit.definitions.namespaces import lazy_namespace
from toolkit.ops.image.colors import hsv_to_rgb, rgb_to_grayscale, rgb_to_hsv
from toolkit.ops.image.filters import gaussian_blur, sobel_edges, ssim
from toolkit.ops.image.pieces import (
    crop_images,
    extract_patches,
    extract_patches_3d,
    pad_images,
)
from toolkit.ops.image.resizing import resize, scale_and_translate
from toolkit.ops.image.warping import (
    affine_transform,
    map_coordinates,
    perspective_transform,
)

# It draws random numbers, so a module of a higher level defines it.
__getattr__, __dir__ = lazy_namespace(
    __name__, {"toolkit.random.elastic": ["elastic_transform"]}
)
