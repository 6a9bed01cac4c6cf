"""Losses, as classes and as functions."""

from typing import Any

from toolkit import serialization
from toolkit.definitions.namespaces import lazy_namespace
from toolkit.losses.crossentropy import (
    BinaryCrossentropy as BinaryCrossentropy,
    BinaryFocalCrossentropy as BinaryFocalCrossentropy,
    CategoricalCrossentropy as CategoricalCrossentropy,
    CategoricalFocalCrossentropy as CategoricalFocalCrossentropy,
    CategoricalGeneralizedCrossEntropy as CategoricalGeneralizedCrossEntropy,
    KLDivergence as KLDivergence,
    Poisson as Poisson,
    SparseCategoricalCrossentropy as SparseCategoricalCrossentropy,
)
from toolkit.losses.hinge import (
    CategoricalHinge as CategoricalHinge,
    Hinge as Hinge,
    SquaredHinge as SquaredHinge,
    categorical_hinge as categorical_hinge,
    hinge as hinge,
    squared_hinge as squared_hinge,
)
from toolkit.losses.loss import Loss as Loss, LossFunctionWrapper as LossFunctionWrapper
from toolkit.losses.overlap import (
    Circle as Circle,
    Dice as Dice,
    Tversky as Tversky,
    circle as circle,
    dice as dice,
    tversky as tversky,
)
from toolkit.losses.probabilistic import (
    binary_crossentropy as binary_crossentropy,
    binary_focal_crossentropy as binary_focal_crossentropy,
    categorical_crossentropy as categorical_crossentropy,
    categorical_focal_crossentropy as categorical_focal_crossentropy,
    categorical_generalized_cross_entropy as categorical_generalized_cross_entropy,
    kl_divergence as kl_divergence,
    poisson as poisson,
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from toolkit.losses.regression import (
    CosineSimilarity as CosineSimilarity,
    Huber as Huber,
    LogCosh as LogCosh,
    MeanAbsoluteError as MeanAbsoluteError,
    MeanAbsolutePercentageError as MeanAbsolutePercentageError,
    MeanSquaredError as MeanSquaredError,
    MeanSquaredLogarithmicError as MeanSquaredLogarithmicError,
    cosine_similarity as cosine_similarity,
    huber as huber,
    log_cosh as log_cosh,
    mean_absolute_error as mean_absolute_error,
    mean_absolute_percentage_error as mean_absolute_percentage_error,
    mean_squared_error as mean_squared_error,
    mean_squared_logarithmic_error as mean_squared_logarithmic_error,
)
from toolkit.losses.sequence import CTC as CTC, ctc as ctc

_CLASSES = (
    *(BinaryCrossentropy, BinaryFocalCrossentropy, CategoricalCrossentropy),
    *(CategoricalFocalCrossentropy, CategoricalGeneralizedCrossEntropy, KLDivergence),
    *(Poisson, SparseCategoricalCrossentropy, CategoricalHinge, Hinge, SquaredHinge),
    *(Circle, CTC, Dice, Tversky, CosineSimilarity, Huber, LogCosh, MeanAbsoluteError),
    *(MeanAbsolutePercentageError, MeanSquaredError, MeanSquaredLogarithmicError),
)
_FUNCTIONS = (
    *(
        categorical_hinge,
        hinge,
        squared_hinge,
        circle,
        ctc,
        dice,
        tversky,
        huber,
        log_cosh,
    ),
    *(binary_crossentropy, binary_focal_crossentropy, categorical_crossentropy),
    *(categorical_focal_crossentropy, kl_divergence, poisson, cosine_similarity),
    *(sparse_categorical_crossentropy, mean_absolute_error, mean_squared_error),
    *(mean_absolute_percentage_error, mean_squared_logarithmic_error),
)
_OBJECTS = {
    **{item.__name__: item for item in (*_CLASSES, *_FUNCTIONS)},
    **dict.fromkeys(("bce", "BCE"), binary_crossentropy),
    **dict.fromkeys(("kld", "KLD", "kullback_leibler_divergence"), kl_divergence),
    **dict.fromkeys(("mae", "MAE"), mean_absolute_error),
    **dict.fromkeys(("mse", "MSE"), mean_squared_error),
    **dict.fromkeys(("mape", "MAPE"), mean_absolute_percentage_error),
    **dict.fromkeys(("msle", "MSLE"), mean_squared_logarithmic_error),
    "logcosh": log_cosh,
    "huber_loss": huber,
}


def serialize(loss: Any) -> Any:
    """Return a loss, an object or a function, as a dict of plain values.

    Args:
        loss: a loss object or function.

    Returns:
        A dict of the class and its config, or the name of a function.

    Example:
        >>> from toolkit import losses
        >>> losses.serialize(losses.Huber(2.0))["config"]["delta"]
        2.0
    """
    return serialization.serialize_keras_object(loss)


def deserialize(name: Any, custom_objects: Any = None) -> Any:
    """Build a loss from the result of `serialize`.

    Args:
        name: the result of `serialize`, or a name.
        custom_objects: a dict from names to classes or functions that the config
            contains.

    Returns:
        The loss object or function.

    Example:
        >>> from toolkit import losses
        >>> config = losses.serialize(losses.Huber(2.0))
        >>> losses.deserialize(config).delta
        2.0
    """
    return serialization.get(name, _OBJECTS, "loss", custom_objects)


def get(identifier: Any) -> Any:
    """Return the loss for a name, config, class, function or object; None stays None.

    Args:
        identifier: a name, config, class, function or object, or None.

    Returns:
        A loss object or function, or None.

    Example:
        >>> from toolkit import losses
        >>> losses.get("mse") is losses.mean_squared_error
        True
        >>> losses.get("Huber").delta
        1.0
    """
    return serialization.get(identifier, _OBJECTS, "loss")


__getattr__, __dir__ = lazy_namespace(__name__, {})
