"""ResNet50 in a separate module, as in Keras."""

from toolkit.applications.resnet import ResNet50, decode_predictions, preprocess_input

__all__ = ["ResNet50", "decode_predictions", "preprocess_input"]
