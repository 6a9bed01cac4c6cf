# Written by scripts/write_stubs; do not edit.
from toolkit.backend import (
    clear_session as clear_session,
    is_keras_tensor as is_keras_tensor,
    standardize_dtype as standardize_dtype,
)
from toolkit.config import (
    disable_interactive_logging as disable_interactive_logging,
    enable_interactive_logging as enable_interactive_logging,
    is_interactive_logging_enabled as is_interactive_logging_enabled,
)
from toolkit.models.functional.topology import get_source_inputs as get_source_inputs
from toolkit.models.plotting.plot import (
    model_to_dot as model_to_dot,
    plot_model as plot_model,
)
from toolkit.models.training.data_adapters import (
    pack_x_y_sample_weight as pack_x_y_sample_weight,
    unpack_x_y_sample_weight as unpack_x_y_sample_weight,
)
from toolkit.models.training.py_dataset import (
    PyDataset as PyDataset,
    Sequence as Sequence,
)
from toolkit.random.seeds import set_random_seed as set_random_seed
from toolkit.serialization.reading import (
    deserialize_keras_object as deserialize_keras_object,
)
from toolkit.serialization.registration import (
    CustomObjectScope as CustomObjectScope,
    custom_object_scope as custom_object_scope,
    get_custom_objects as get_custom_objects,
    get_registered_name as get_registered_name,
    get_registered_object as get_registered_object,
    register_keras_serializable as register_keras_serializable,
)
from toolkit.serialization.writing import (
    serialize_keras_object as serialize_keras_object,
)
from toolkit.utils import bounding_boxes as bounding_boxes, legacy as legacy
from toolkit.utils.audio import (
    audio_dataset_from_directory as audio_dataset_from_directory,
)
from toolkit.utils.config import Config as Config
from toolkit.utils.directories import (
    image_dataset_from_directory as image_dataset_from_directory,
    text_dataset_from_directory as text_dataset_from_directory,
)
from toolkit.utils.feature_space import FeatureSpace as FeatureSpace
from toolkit.utils.files import get_file as get_file
from toolkit.utils.images import (
    array_to_img as array_to_img,
    img_to_array as img_to_array,
    load_img as load_img,
    save_img as save_img,
)
from toolkit.utils.numerical import (
    normalize as normalize,
    to_categorical as to_categorical,
)
from toolkit.utils.progress import Progbar as Progbar
from toolkit.utils.sequences import (
    pad_sequences as pad_sequences,
    timeseries_dataset_from_array as timeseries_dataset_from_array,
)
from toolkit.utils.splitting import split_dataset as split_dataset

__all__ = [
    "Config",
    "CustomObjectScope",
    "FeatureSpace",
    "Progbar",
    "PyDataset",
    "Sequence",
    "array_to_img",
    "audio_dataset_from_directory",
    "bounding_boxes",
    "clear_session",
    "custom_object_scope",
    "deserialize_keras_object",
    "disable_interactive_logging",
    "enable_interactive_logging",
    "get_custom_objects",
    "get_file",
    "get_registered_name",
    "get_registered_object",
    "get_source_inputs",
    "image_dataset_from_directory",
    "img_to_array",
    "is_interactive_logging_enabled",
    "is_keras_tensor",
    "legacy",
    "load_img",
    "model_to_dot",
    "normalize",
    "pack_x_y_sample_weight",
    "pad_sequences",
    "plot_model",
    "register_keras_serializable",
    "save_img",
    "serialize_keras_object",
    "set_random_seed",
    "split_dataset",
    "standardize_dtype",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
    "to_categorical",
    "unpack_x_y_sample_weight",
]
