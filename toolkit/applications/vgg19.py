"""VGG19: as VGG16, with four convolutions in each of the last three blocks."""

from toolkit.applications.common import Application, Preprocessor, preprocessor
from toolkit.applications.imagenet_utils import decode_predictions
from toolkit.applications.vgg16 import variant

__all__ = ["VGG19", "decode_predictions", "preprocess_input"]

preprocess_input: Preprocessor = preprocessor("caffe", __name__)
VGG19: Application = variant(19, (2, 2, 4, 4, 4))
