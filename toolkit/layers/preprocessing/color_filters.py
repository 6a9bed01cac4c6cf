"""Layers that filter the colors of images at random: sharpness, bits, blur."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed, is_int
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.color_layer import (
    BYTES,
    RandomColorLayer,
    factor_range,
    per_image,
    rescaled,
)
from toolkit.type_aliases import (
    Array,
    IntOrInts,
    NumberOrRange,
    NumberRange,
    Range,
    RegularizedLayerOptions,
    SeedLike,
    TensorLike,
)

# The blur kernel of RandomSharpness, PIL's ImageFilter.SMOOTH.
_SMOOTH = [[1 / 13, 1 / 13, 1 / 13], [1 / 13, 5 / 13, 1 / 13], [1 / 13, 1 / 13, 1 / 13]]


class RandomSharpness(RandomColorLayer):
    """Random sharpness: in training, moves images towards or away from a blurred copy.

    `clip(x + (1 - 2 * f) * (blurred - x), low, high)`.

    Args:
        factor: range (lower, upper) of f inside [0, 1]: 0 means blurred, 0.5 no
            change, 1 sharpened; a number f: (0, f).
        value_range: (lowest, highest) value of the images.
        data_format: "channels_last", "channels_first", or None for the global default.
        seed: an integer, for reproducible draws, or a SeedGenerator.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomSharpness((0.5, 0.5))
        >>> layer(toolkit.ops.array([[[1.0], [3.0]]])).tolist()
        [[[1.0], [3.0]]]
    """

    bounds: ClassVar[Range] = (0.0, 1.0)

    def _adjusted(self, x: Tensor, factor: Array | Tensor) -> Tensor:
        kernel = ops.reshape(
            ops.convert_to_tensor(_SMOOTH, dtype=x.dtype), (3, 3, 1, 1)
        )
        kernel = ops.tile(kernel, (1, 1, x.shape[-1], 1))
        smooth = ops.depthwise_conv(
            x, kernel, padding="same", data_format="channels_last"
        )
        return self._clipped(x + (1 - 2 * per_image(factor, x.dtype)) * (smooth - x))


class RandomPosterization(RandomColorLayer):
    """Random posterization: in training, keeps only the highest bits of each pixel.

    Args:
        factor: the number of bits (of 8): an integer, or a range (lower, upper), upper
            excluded; an integer n: (1, n). Pixels are scaled to [0, 255].
        value_range: (lowest, highest) value of the images.
        data_format: "channels_last", "channels_first", or None for the global default.
        seed: an integer, for reproducible draws, or a SeedGenerator.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomPosterization(1)
        >>> layer(toolkit.ops.array([[[100.0], [200.0]]])).tolist()
        [[[0.0], [128.0]]]
    """

    bounds: ClassVar[Range] = (1, 8)

    def _draw_transformation(self, n: int, seed: SeedLike) -> dict[str, Any]:
        low, high = map(int, self.factor)
        bits = random.randint((n, 1, 1, 1), low, max(high, low + 1), seed=seed)
        return {"shift_factor": 8 - bits}

    def _adjusted(self, x: Any, shift_factor: Any) -> Any:
        levels = ops.cast(rescaled(x, self.value_range, BYTES), "int32")
        shift = ops.cast(per_image(shift_factor), "int32")
        levels = ops.left_shift(ops.right_shift(levels, shift), shift)
        return rescaled(ops.cast(levels, x.dtype), BYTES, self.value_range)


class RandomGaussianBlur(RandomColorLayer):
    """Random Gaussian blur: in training, blurs some of the images; padding is 0.

    Args:
        factor: range (lower, upper) inside [0, 1] of each image's probability; a number
            f: (0, f).
        kernel_size: width and height of the kernel in pixels, odd; a number for both.
        sigma: range (lower, upper) inside [0, 1] of the kernel's standard deviations,
            in pixels, drawn once for the width and the height of all images; a number
            s: (0, s).
        value_range: (lowest, highest) value of the images.
        data_format: "channels_last", "channels_first", or None for the global default.
        seed: an integer, for reproducible draws, or a SeedGenerator.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomGaussianBlur(factor=0)
        >>> layer(toolkit.ops.array([[[1.0], [3.0]]])).tolist()
        [[[1.0], [3.0]]]
    """

    bounds: ClassVar[Range] = (0.0, 1.0)

    def __init__(
        self,
        factor: NumberOrRange = 1.0,
        kernel_size: IntOrInts = 3,
        sigma: NumberOrRange = 1.0,
        value_range: NumberRange = (0, 255),
        data_format: str | None = None,
        seed: Seed = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(factor, value_range, data_format, seed, **kwargs)
        sizes = (
            kernel_size if isinstance(kernel_size, (tuple, list)) else [kernel_size] * 2
        )
        if len(sizes) != 2 or not all(is_int(n) and n % 2 for n in sizes):
            raise ArgumentError(
                "RandomGaussianBlur: kernel_size must be an odd number, or two of "
                f"them. Received: kernel_size={kernel_size!r}"
            )
        self.kernel_size: tuple[Any, ...] = tuple(sizes)
        self.sigma: Range = factor_range(self, sigma, self.bounds, "sigma")

    def _draw_transformation(self, n: int, seed: SeedLike) -> dict[str, Any]:
        # A sigma of 0 would compute 0 / 0 in the center of the kernel.
        low, high = map(float, self.sigma)
        sigma = random.uniform((2,), low, high, seed=seed) + 1e-6
        return {
            "should_apply_blur": self._draw_is_selected(n, seed),
            "blur_factor": sigma,
        }

    def _adjusted(
        self, x: TensorLike, should_apply_blur: Array | Tensor, blur_factor: Any
    ) -> Tensor:
        blurred = ops.image.gaussian_blur(
            x, self.kernel_size, blur_factor, "channels_last"
        )
        return self._clipped(ops.where(per_image(should_apply_blur), blurred, x))


class Solarization(RandomColorLayer):
    """Solarization: adds a number to each image, then inverts bright pixels.

    With values in [0, 255], `x = clip(x + addition)`, then `x` below the threshold,
    else `255 - x`. It applies in training only.

    Args:
        addition_factor: range (lower, upper) inside [0, 1] of the addition, as a
            fraction of 255; a number f: (0, f).
        threshold_factor: range of the threshold, like `addition_factor`.
        value_range: (lowest, highest) value of the images.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Solarization(threshold_factor=(0.5, 0.5))
        >>> layer(toolkit.ops.array([[[100.0], [200.0]]])).tolist()
        [[[100.0], [55.0]]]
    """

    def __init__(
        self,
        addition_factor: NumberOrRange = 0.0,
        threshold_factor: NumberOrRange = 0.0,
        value_range: NumberRange = (0, 255),
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(0.0, value_range, data_format, seed, **kwargs)
        bounds = 0.0, 1.0
        self.addition_factor: Range = factor_range(
            self, addition_factor, bounds, "addition_factor"
        )
        self.threshold_factor: Range = factor_range(
            self, threshold_factor, bounds, "threshold_factor"
        )

    def _draw_transformation(self, n: int, seed: SeedLike) -> dict[str, Any]:
        return {
            "additions": self._uniform(n, seed, self.addition_factor) * 255,
            "thresholds": self._uniform(n, seed, self.threshold_factor) * 255,
        }

    def _adjusted(
        self, x: Tensor, additions: Array | Tensor, thresholds: Array | Tensor
    ) -> Tensor:
        x = rescaled(x, self.value_range, BYTES) + per_image(additions, x.dtype)
        x = ops.clip(x, *BYTES)
        x = ops.where(x < per_image(thresholds, x.dtype), x, 255 - x)
        return rescaled(x, BYTES, self.value_range)
