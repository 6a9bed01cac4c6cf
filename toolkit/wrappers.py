"""Models as estimators of scikit-learn, which is only needed when one is created."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.definitions.namespaces import module_dir
from toolkit.errors import ArgumentError, NotCompiledError, ShapeError, TraceError
from toolkit.models.cloning import clone_model
from toolkit.models.model import Model
from toolkit.type_aliases import Array

__all__ = ["SKLearnClassifier", "SKLearnRegressor", "SKLearnTransformer"]


def _bases() -> tuple[Any, Any, Any, Any]:
    """Return the base classes of scikit-learn, or plain ones if it is not installed."""
    try:
        from sklearn import base
    except ImportError:
        return object, *(type(name, (), {}) for name in "CRT")  # type: ignore[return-value]
    mixins = base.ClassifierMixin, base.RegressorMixin, base.TransformerMixin
    return base.BaseEstimator, *mixins


if TYPE_CHECKING:
    from sklearn.base import (
        BaseEstimator as _BaseEstimator,
        ClassifierMixin as _ClassifierMixin,
        RegressorMixin as _RegressorMixin,
        TransformerMixin as _TransformerMixin,
    )
else:
    _BaseEstimator, _ClassifierMixin, _RegressorMixin, _TransformerMixin = _bases()


# Dict arguments whose entries have names such as "model_kwargs__units".
_NESTED = ("model_kwargs", "fit_kwargs")


class _Estimator(_BaseEstimator):
    """Common base of the three estimators: creation, fit and prediction of a model."""

    _multi_output = True

    def __init__(
        self,
        model: Any,
        warm_start: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        fit_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if _BaseEstimator is object:
            raise ImportError(
                f"{type(self).__name__} requires `scikit-learn`; install it with "
                "`pip install scikit-learn`"
            )
        self.model = model
        self.warm_start = warm_start
        self.model_kwargs = model_kwargs
        self.fit_kwargs = fit_kwargs

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the estimator.

        Args:
            deep: whether to include each entry of `model_kwargs` and `fit_kwargs`, with
                a name such as `model_kwargs__units`.

        Returns:
            The arguments by name.
        """
        params: dict[str, Any] = super().get_params(deep=deep)
        for name in _NESTED if deep else ():
            entries = params[name] if isinstance(params[name], dict) else {}
            params |= {f"{name}__{key}": value for key, value in entries.items()}
        return params

    def set_params(self, **params: Any) -> Any:
        """Set arguments of the estimator.

        Args:
            **params: arguments by name. `model_kwargs__units` is the entry "units" of
                `model_kwargs`, and `fit_kwargs__epochs` one of `fit_kwargs`. The other
                entries do not change.

        Returns:
            The estimator.
        """
        nested = {
            name: (owner, key)
            for name in params
            for owner, separator, key in [name.partition("__")]
            if separator and owner in _NESTED
        }
        super().set_params(**{x: y for x, y in params.items() if x not in nested})
        for name, (owner, key) in nested.items():
            entries = getattr(self, owner) or {}
            setattr(self, owner, {**entries, key: params[name]})
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.target_tags.multi_output = self._multi_output
        return tags

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted copy; with `warm_start` it has a copy of the model."""
        params = self.get_params(deep=False)
        if self.warm_start and isinstance(self.model, Model):
            params["model"] = copy.deepcopy(self.model)
        return type(self)(**params)

    @property
    def epoch_(self) -> int:
        """Return the number of epochs of the last fit."""
        history = getattr(self, "history_", None)
        return len(history.epoch) if history else 0

    def set_fit_request(self, **kwargs: Any) -> Any:
        """Define the arguments of `fit` that scikit-learn's metadata routing forwards.

        Args:
            **kwargs: argument's name -> True, False, None or another name for it.

        Returns:
            The estimator.
        """
        import sklearn
        from sklearn.utils.metadata_routing import MetadataRequest

        if not sklearn.get_config()["enable_metadata_routing"]:
            raise TraceError(
                f"{type(self).__name__}.set_fit_request: metadata routing is off; "
                "enable it with sklearn.set_config(enable_metadata_routing=True)"
            )
        self._metadata_request = MetadataRequest(owner=type(self).__name__)
        for param, alias in kwargs.items():
            self._metadata_request.fit.add_request(param=param, alias=alias)
        return self

    def fit(self, X: Any, y: Any, **kwargs: Any) -> Any:
        """Fit a model to the data.

        Args:
            X: (n_samples, n_features).
            y: (n_samples,), or (n_samples, n_outputs).
            **kwargs: arguments of `Model.fit`, which override `fit_kwargs`.

        Returns:
            The estimator.
        """
        from sklearn.utils.validation import validate_data

        X, y = validate_data(self, X, y, multi_output=self._multi_output)
        options = {**(self.fit_kwargs or {}), **kwargs}
        target = self._encode(y, options.get("sample_weight"))
        model = self._prepare_model(X, target)
        if not model.compiled or not model.loss or not model.optimizer:
            raise NotCompiledError(
                f"{type(self).__name__}: the given model needs to be compiled, with a "
                "loss and an optimizer"
            )
        try:
            self.history_: Any = model.fit(X, target, **options)
        except ShapeError as error:
            error.args = (f"{error}{self._describe_target(target)}",)
            raise
        self.model_ = model
        return self

    def _describe_target(self, target: Array) -> str:
        """Return the form of the targets that the model receives, for a message."""
        return (
            f"; {type(self).__name__} passes targets of shape {target.shape} to the "
            "model"
        )

    def _prepare_model(self, X: Any, y: Any) -> Any:
        """Return the model to fit: a new one, or with `warm_start` the previous one."""
        if self.warm_start and hasattr(self, "model_"):
            return self.model_
        if isinstance(self.model, Model):
            return self.model if self.warm_start else clone_model(self.model)
        return self.model(X=X, y=y, **(self.model_kwargs or {}))

    def predict(self, X: Any) -> Any:
        """Return the predictions of the model, in the form of the `y` in the fit.

        Args:
            X: the samples, (n_samples, n_features).
        """
        return self._decode(self._predict_outputs(X))

    def _predict_outputs(self, X: Any) -> Any:
        """Return the model's outputs for checked inputs."""
        from sklearn.utils.validation import check_is_fitted, validate_data

        check_is_fitted(self, "model_")
        verbose = (self.fit_kwargs or {}).get("verbose", "auto")
        return self.model_.predict(validate_data(self, X, reset=False), verbose=verbose)

    def _encode(self, y: Any, sample_weight: Any) -> Any:
        """Return targets in the form of the model: (n_samples, n_outputs)."""
        from sklearn.utils.multiclass import type_of_target

        type_of_target(y, raise_unknown=True)
        self._target_ndim = y.ndim
        return y.reshape(len(y), -1)

    def _decode(self, outputs: Any) -> Any:
        """Return outputs with the number of axes of the targets in the fit."""
        is_flat = self._target_ndim == 1 and outputs.ndim == 2 and outputs.shape[1] == 1
        return outputs[:, 0] if is_flat else outputs


class SKLearnClassifier(_ClassifierMixin, _Estimator):
    """A model as a classifier of scikit-learn.

    The model is fitted to one-hot targets (n_samples, n_classes), so it has n_classes
    outputs.

    Two fits give the same result only if the model function sets the seeds, with
    `toolkit.utils.set_random_seed`.

    Args:
        model: a compiled `Model`, which is cloned for each fit, or a callable that
            returns one and takes at least `X` and `y`.
        warm_start: whether a fit continues with the weights of the previous one; then a
            given model is not cloned.
        model_kwargs: further arguments of that callable. A grid search can set one of
            them, as `model_kwargs__units`.
        fit_kwargs: arguments of `Model.fit`, unless the estimator's `fit` receives
            them. `verbose` also applies to predictions.

    Attributes:
        model_: the fitted model.
        history_: the result of `Model.fit`.
        classes_: the labels, (n_classes,).

    Example:
        >>> from toolkit import Sequential, layers, wrappers
        >>> def make(X, y):
        ...     model = Sequential([layers.Dense(y.shape[1], activation="softmax")])
        ...     model.compile("adam", "categorical_crossentropy")
        ...     return model
        >>> estimator = wrappers.SKLearnClassifier(make)  # doctest: +SKIP
        >>> estimator.fit(X, y, epochs=5).score(X, y)  # doctest: +SKIP
        0.97
    """

    _multi_output = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags

    def decision_function(self, X: Any) -> Any:
        """Return the model's outputs (n_samples, n_classes).

        For two classes, as in all of scikit-learn, it is one score for each sample: the
        second output minus the first, above 0 if the second class is predicted.

        Args:
            X: the samples, (n_samples, n_features).
        """
        outputs = self._predict_outputs(X)
        if len(self.classes_) == 2:
            return outputs[:, 1] - outputs[:, 0]
        return outputs

    def _encode(self, y: Any, sample_weight: Any) -> Any:
        from sklearn.utils.multiclass import check_classification_targets

        check_classification_targets(y)
        self.classes_: Array
        self.classes_, labels = np.unique(y, return_inverse=True)
        weighted_labels = labels
        if sample_weight is not None:
            weighted_labels = labels[np.asarray(sample_weight) != 0]
        if len(np.unique(weighted_labels)) < 2:
            raise ArgumentError(
                f"{type(self).__name__}: cannot train with only one class; received "
                f"{len(self.classes_)} in y, of which "
                f"{len(np.unique(weighted_labels))} without those whose "
                "sample_weight is 0"
            )
        return np.eye(len(self.classes_))[labels]

    def _describe_target(self, target: Array) -> str:
        return (
            f"; {type(self).__name__} converts y to one-hot targets of shape "
            f"{target.shape}: the model needs {target.shape[1]} outputs with 'softmax' "
            "and loss='categorical_crossentropy'"
        )

    def _decode(self, outputs: Any) -> Any:
        return self.classes_[np.argmax(outputs, axis=1)]


class SKLearnRegressor(_RegressorMixin, _Estimator):
    """A model as a regressor of scikit-learn.

    The model is fitted to targets (n_samples, n_outputs), and predictions are float64.
    Arguments and attributes are the same as in `SKLearnClassifier`, except for
    `classes_`.

    Args:
        model: a compiled `Model`, which is cloned for each fit, or a callable that
            returns one and takes at least `X` and `y`.
        warm_start: whether a fit continues with the weights of the previous one.
        model_kwargs: further arguments of that callable.
        fit_kwargs: arguments of `Model.fit`.

    Example:
        >>> from toolkit import Sequential, layers, wrappers
        >>> def make(X, y):
        ...     model = Sequential([layers.Dense(y.shape[1])])
        ...     model.compile("adam", "mse")
        ...     return model
        >>> estimator = wrappers.SKLearnRegressor(make)  # doctest: +SKIP
        >>> estimator.fit(X, y, epochs=5).predict(X)  # doctest: +SKIP
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _decode(self, outputs: Any) -> Any:
        return super()._decode(outputs).astype("float64")


class SKLearnTransformer(_TransformerMixin, _Estimator):
    """A model as a transformer of scikit-learn, for example for embeddings.

    Arguments and attributes are the same as in `SKLearnClassifier`, except for
    `classes_`.

    Args:
        model: a compiled `Model`, which is cloned for each fit, or a callable that
            returns one and takes at least `X` and `y`.
        warm_start: whether a fit continues with the weights of the previous one.
        model_kwargs: further arguments of that callable.
        fit_kwargs: arguments of `Model.fit`.

    Example:
        >>> from toolkit import Sequential, layers, wrappers
        >>> model = Sequential([layers.Input((3,)), layers.Dense(2)])
        >>> model.compile("adam", "mse")
        >>> estimator = wrappers.SKLearnTransformer(model)  # doctest: +SKIP
        >>> estimator.fit(X, y).transform(X)  # doctest: +SKIP
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def transform(self, X: Any) -> Any:
        """Return the model's outputs for X (n_samples, n_features).

        Args:
            X: the samples, (n_samples, n_features).
        """
        return self._predict_outputs(X)


__dir__ = module_dir(__name__)
