"""Image architectures, as in keras.applications; each is imported on first use.

Example:
    >>> import toolkit
    >>> model = toolkit.applications.MobileNetV2(
    ...     (32, 32, 3), alpha=0.35, include_top=False, weights=None, pooling="avg"
    ... )
    >>> model.output_shape
    (None, 1280)
"""

from __future__ import annotations

from toolkit.definitions.namespaces import lazy_namespace

_MODULES = {
    "convnext": (
        "ConvNeXtBase",
        "ConvNeXtLarge",
        "ConvNeXtSmall",
        "ConvNeXtTiny",
        "ConvNeXtXLarge",
    ),
    "densenet": ("DenseNet121", "DenseNet169", "DenseNet201"),
    "efficientnet": tuple(f"EfficientNetB{i}" for i in range(8)),
    "efficientnet_v2": (
        *(f"EfficientNetV2B{i}" for i in range(4)),
        *("EfficientNetV2L", "EfficientNetV2M", "EfficientNetV2S"),
    ),
    "imagenet_utils": (),
    "inception_resnet_v2": ("InceptionResNetV2",),
    "inception_v3": ("InceptionV3",),
    "mobilenet": ("MobileNet",),
    "mobilenet_v2": ("MobileNetV2",),
    "mobilenet_v3": ("MobileNetV3Large", "MobileNetV3Small"),
    "nasnet": ("NASNetLarge", "NASNetMobile"),
    "resnet": ("ResNet50", "ResNet101", "ResNet152"),
    "resnet50": (),
    "resnet_v2": ("ResNet50V2", "ResNet101V2", "ResNet152V2"),
    "vgg16": ("VGG16",),
    "vgg19": ("VGG19",),
    "xception": ("Xception",),
}

__all__ = [*_MODULES, *(name for names in _MODULES.values() for name in names)]

__getattr__, __dir__ = lazy_namespace(
    __name__,
    {f"{__name__}.{module}": names for module, names in _MODULES.items()},
    _MODULES,
)
