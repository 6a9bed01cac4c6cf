"""Shared parts of the architectures: arguments, input, classifier, weights, blocks."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol

from toolkit import layers, settings
from toolkit.applications import imagenet_utils
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.models.functional.model import Functional
from toolkit.models.functional.topology import get_source_inputs
from toolkit.ops.symbolic import KerasTensor
from toolkit.type_aliases import ActivationLike, Shape, TensorLike

URL = "https://storage.googleapis.com/tensorflow/keras-applications/"
# The arguments of most constructors, in order; `name` has the default of the row.
STANDARD: dict[str, Any] = {
    "include_top": True,
    "weights": "imagenet",
    "input_tensor": None,
    "input_shape": None,
    "pooling": None,
    "classes": 1000,
    "classifier_activation": "softmax",
}


class Application(Protocol):
    """The constructor of a network; some families have further arguments."""

    def __call__(
        self,
        *args: Any,
        include_top: bool = True,
        weights: str | os.PathLike[str] | None = "imagenet",
        input_tensor: KerasTensor | None = None,
        input_shape: Shape | None = None,
        pooling: Literal["avg", "max"] | None = None,
        classes: int = 1000,
        classifier_activation: ActivationLike | None = "softmax",
        name: str | None = None,
        **options: Any,
    ) -> Functional:
        """Return a network with its weights."""


class Preprocessor(Protocol):
    """A family's `preprocess_input`."""

    def __call__(self, x: TensorLike, data_format: str | None = None) -> Any:
        """Scale pixels of 0..255 to the range of the family."""


relu6: partial[layers.ReLU] = partial(layers.ReLU, 6.0)


@record
class Network:
    """The arguments of a constructor, and the parts that depend on them."""

    include_top: bool
    weights: Any
    input_tensor: Any
    input_shape: Any
    pooling: str | None
    classes: int
    classifier_activation: Any
    name: str | None

    def __post_init__(self) -> None:
        is_known = self.weights is None or self.weights == "imagenet"
        if not is_known and not os.path.exists(self.weights):
            raise ArgumentError(
                "the `weights` argument should be either None (random "
                "initialization), 'imagenet' (pre-training on ImageNet), or the path "
                f"to the weights file to be loaded; received weights={self.weights!r}"
            )
        if self.pretrained and self.include_top and self.classes != 1000:
            raise ArgumentError(
                "with weights='imagenet' and include_top=True, `classes` should be "
                f"1000; received classes={self.classes}"
            )
        if self.pooling not in (None, "avg", "max"):
            raise unknown_choice("pooling", self.pooling, (None, "avg", "max"))
        if self.include_top:
            imagenet_utils.validate_activation(self.classifier_activation, self.weights)
        tensor = self.input_tensor
        if tensor is not None and not isinstance(tensor, KerasTensor):
            raise ArgumentError(
                "input_tensor must be a Keras tensor, as layers.Input() returns; "
                f"received {tensor!r} of {type(tensor)}"
            )

    @property
    def pretrained(self) -> bool:
        """Return whether the arguments request ImageNet weights."""
        return isinstance(self.weights, str) and self.weights == "imagenet"

    def shape(self, size: int, minimum: int = 32) -> imagenet_utils.Shape:
        """Return the validated shape of one image."""
        return imagenet_utils.obtain_input_shape(
            self.input_shape,
            default_size=size,
            min_size=minimum,
            data_format=settings.image_data_format(),
            require_flatten=self.include_top,
            weights=self.weights if self.pretrained else None,
        )

    def input(self, shape: imagenet_utils.Shape) -> KerasTensor:
        """Return the input tensor of the network."""
        return layers.Input(shape) if self.input_tensor is None else self.input_tensor

    def pool(
        self, x: TensorLike, average: Any = "avg_pool", largest: Any = "max_pool"
    ) -> Any:
        """Apply `pooling`, in layers with these names."""
        if self.pooling == "avg":
            return layers.GlobalAveragePooling2D(name=average)(x)
        if self.pooling == "max":
            return layers.GlobalMaxPooling2D(name=largest)(x)
        return x

    def classify(self, x: TensorLike, name: str = "predictions", **options: Any) -> Any:
        """Apply the last layer: a score for each class."""
        activation = self.classifier_activation
        return layers.Dense(self.classes, activation=activation, name=name, **options)(
            x
        )

    def top(
        self, x: TensorLike, average: Any = "avg_pool", pools: Any = (None, None)
    ) -> Any:
        """Apply global average pooling and the classifier, or `pooling` alone."""
        if not self.include_top:
            return self.pool(x, *pools)
        return self.classify(layers.GlobalAveragePooling2D(name=average)(x))

    def model(
        self,
        start: KerasTensor,
        outputs: Any,
        file: str,
        no_top: str = "_notop",
        url: str = URL,
        name: str | None = None,
    ) -> Functional:
        """Return the model with its weights.

        `file` is the path of the ImageNet weights below `url`. Its {} is replaced by
        `no_top` for a model without the classifier. `name` is the default name.
        """
        has_own_input = self.input_tensor is None
        inputs = start if has_own_input else get_source_inputs(self.input_tensor)
        model = Functional(inputs, outputs, name=self.name or name)
        if self.pretrained:
            file = file.format("" if self.include_top else no_top)
            model.load_weights(imagenet_utils.download(url + file))
        elif self.weights is not None:
            model.load_weights(self.weights)
        return model


_DOCUMENTATION = """Create {title}, a network for image classification. {reference}

Args:
    include_top: whether the model includes the classifier.
    weights: None for random weights, "imagenet" for weights that are trained on
        ImageNet, or the path of a weights file. ImageNet weights are downloaded once
        and verified.
    input_tensor: a Keras tensor to use as the input instead of a new input.
    input_shape: the shape of one image, at least {minimum} x {minimum}. Default:
        {size} x {size} x 3; without the classifier, an unknown height and width.
    pooling: without the classifier, the pooling over the image: "avg", "max" or None.
    classes: the number of classes.
    classifier_activation: the activation of the last layer; None returns the logits.
    name: the name of the model.{more}

Returns:
    A Model: (batch, height, width, channels) to (batch, classes).

Raises:
    ArgumentError: the arguments contradict each other.
    DatasetError: the ImageNet weights cannot be downloaded.

Example:
    >>> import toolkit
    >>> model = toolkit.applications.{title}(weights=None)  # doctest: +SKIP
"""


def describe(
    title: str, reference: str, extra: str = "", size: int = 224, minimum: int = 32
) -> str:
    """Write the docstring of a constructor."""
    return _DOCUMENTATION.format(
        title=title, reference=reference, more=extra, size=size, minimum=minimum
    )


def with_signature(
    build: Callable[..., Functional], title: str, defaults: dict[str, Any], doc: str
) -> Application:
    """Wrap `build`, which takes keywords, as a public function with these
    parameters."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [inspect.Parameter(key, kind, default=value) for key, value in defaults.items()]
    )

    def construct(*args: Any, **kwargs: Any) -> Functional:
        return build(**{**defaults, **signature.bind(*args, **kwargs).arguments})

    construct.__name__ = construct.__qualname__ = title
    construct.__module__ = build.__module__
    vars(construct)["__signature__"] = signature
    construct.__doc__ = doc
    return construct


def constructor(
    title: str,
    body: Callable[..., Any],
    reference: str,
    *,
    file: str,
    name: str,
    size: int = 224,
    minimum: int = 32,
    parameters: dict[str, Any] = STANDARD,
    extra: str = "",
    url: str = URL,
    no_top: str = "_notop",
    fixed: bool = False,
    **row: Any,
) -> Application:
    """Create the public function for one row in a family's table.

    `body(net, x, **row)` maps the input x to the output. It also receives the
    `parameters` that are not in STANDARD, which `more` documents. `fixed`: `size` is
    also the default without the classifier.
    """

    def build(**arguments: Any) -> Functional:
        net = Network(**{key: arguments.pop(key) for key in (*STANDARD, "name")})
        if fixed and net.input_shape is None:
            net = replace(net, input_shape=(size, size, 3))
        start = net.input(net.shape(size, minimum))
        outputs = body(net, start, **row, **arguments)
        return net.model(start, outputs, file, no_top, url)

    build.__module__ = body.__module__
    doc = describe(title, reference, extra, size, minimum)
    return with_signature(build, title, {**parameters, "name": name}, doc)


_UNCHANGED = """Return the pixels of 0..255 unchanged; the model scales them.

Args:
    x: images, (..., height, width, channels).
    data_format: has no effect.

Returns:
    x.

Example:
    >>> preprocess_input([[[0.0, 127.5, 255.0]]])
    [[[0.0, 127.5, 255.0]]]
"""
_SCALED = """Scale pixels of 0..255 to the range of this model.

It is `imagenet_utils.preprocess_input` in mode "{}".

Args:
    x: images, (..., height, width, channels). A NumPy array of floats is overwritten.
    data_format: "channels_last" or "channels_first"; the global setting if None.

Returns:
    Floats of the shape of x.

Example:
    >>> import numpy as np
    >>> preprocess_input(np.zeros((1, 2, 2, 3))).shape
    (1, 2, 2, 3)
"""


def preprocessor(mode: str | None, module: str) -> Preprocessor:
    """Create a module's `preprocess_input`; with None, the model itself takes
    0..255."""

    def preprocess_input(x: TensorLike, data_format: str | None = None) -> Any:
        if mode is None:
            return x
        return imagenet_utils.preprocess_input(x, data_format=data_format, mode=mode)

    preprocess_input.__doc__ = (_UNCHANGED if mode is None else _SCALED).format(mode)
    preprocess_input.__module__ = module
    return preprocess_input


def channels_last_only(family: str) -> None:
    """Raise for "channels_first", which the family does not support."""
    if settings.image_data_format() == "channels_first":
        raise ArgumentError(
            f"{family} does not support the channels_first image data format; call "
            'toolkit.config.set_image_data_format("channels_last")'
        )


def channel_axis() -> int:
    """Return the channel axis in a batch of images."""
    return 1 if settings.image_data_format() == "channels_first" else 3


def apply_normalization(
    x: Any,
    name: str | None = None,
    activation: Any = None,
    activation_name: str | None = None,
    **options: Any,
) -> Any:
    """Apply batch normalization and an activation, given by name or by layer
    factory."""
    x = layers.BatchNormalization(axis=channel_axis(), name=name, **options)(x)
    if activation is None:
        return x
    make = activation if callable(activation) else activation_layer(activation)
    return make(name=activation_name)(x)


def activation_layer(activation: str) -> Callable[..., Any]:
    """Return a layer factory for an activation."""
    return partial(layers.Activation, activation)


def make_divisible(value: float, divisor: int = 8) -> int:
    """Round `value` to a multiple of `divisor` that is at least 90% of it."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded
