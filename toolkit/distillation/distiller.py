"""Distiller: a model that trains a student to match its teacher."""

from __future__ import annotations

from typing import Any

from toolkit import ops, tree
from toolkit.arguments import is_real
from toolkit.errors import ArgumentError
from toolkit.layers.tracking import no_tracking
from toolkit.metrics import Mean
from toolkit.models import Model
from toolkit.models.training.steps import samples

_FINAL = "final_output"


class Distiller(Model):
    """Model that trains a student on labels and on the outputs of a teacher.

    The loss is `student_loss_weight * loss + (1 - student_loss_weight) * (sum of
    weighted distillation losses)`, plus the student's regularization. Predictions are
    the student's outputs. The student is trained in place; the teacher is frozen.

    Args:
        teacher: a trained model.
        student: the model to train, with inputs and outputs like the teacher's.
        distillation_losses: a `DistillationLoss` or a list of them.
        distillation_loss_weights: a factor for each; 1 if None.
        student_loss_weight: from 0 to 1.
        name: of this model.

    Example:
        >>> import numpy as np
        >>> from toolkit import Sequential, distillation, layers
        >>> teacher, student = (
        ...     Sequential([layers.Input((4,)), layers.Dense(n), layers.Dense(3)])
        ...     for n in (32, 2)
        ... )
        >>> distiller = distillation.Distiller(
        ...     teacher, student, distillation.LogitsDistillation()
        ... )
        >>> distiller.compile("adam", "sparse_categorical_crossentropy")
        >>> history = distiller.fit(np.ones((8, 4)), np.ones(8), verbose=0)
        >>> sorted(history.history)
        ['distillation_loss', 'loss', 'student_loss', 'total_loss']
    """

    def __init__(
        self,
        teacher: Any,
        student: Any,
        distillation_losses: Any,
        distillation_loss_weights: Any = None,
        student_loss_weight: float = 0.5,
        name: str = "distiller",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        _check_models(teacher, student)
        self.teacher: Any = teacher
        self.student: Any = student
        self.student_loss_weight: float = _checked_share(student_loss_weight)
        if distillation_losses is None:
            raise ArgumentError(
                "Distiller: 'distillation_losses' cannot be `None`; pass "
                "LogitsDistillation(), FeatureDistillation(), or a list of such"
            )
        if not isinstance(distillation_losses, (list, tuple)):
            distillation_losses = [distillation_losses]
        weights = distillation_loss_weights
        if weights is None:
            weights = [1.0] * len(distillation_losses)
        if len(weights) != len(distillation_losses):
            raise ArgumentError(
                "Distiller: expected one weight in distillation_loss_weights for "
                f"each of distillation_losses; received {len(weights)} and "
                f"{len(distillation_losses)}"
            )
        for loss in distillation_losses:
            loss.validate_model_compatibility(teacher, student)
        with no_tracking():  # the extractors share layers with the models
            self.distillation_losses: list[Any] = list(distillation_losses)
            self.distillation_loss_weights: list[float] = list(weights)
            self._teacher_feature_extractor = self._extractor(teacher, "teacher")
            self._student_feature_extractor = self._extractor(student, "student")
        teacher.trainable = False
        self.student_loss_tracker: Mean = Mean(name="student_loss")
        self.distillation_loss_tracker: Mean = Mean(name="distillation_loss")
        self.total_loss_tracker: Mean = Mean(name="total_loss")

    def _extractor(self, model: Model, role: str) -> Any:
        """Return a model of the layer outputs that the losses compare, or None."""
        names = [
            getattr(loss, f"{role}_layer_name", None)
            for loss in self.distillation_losses
        ]
        outputs = {name: model.get_layer(name=name).output for name in names if name}
        if not outputs:
            return None
        return Model(model.inputs, {_FINAL: model.output, **outputs})

    def compile(  # type: ignore[override]
        self,
        optimizer: Any = "adam",
        loss: Any = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        """Configure the training of the student.

        Args:
            optimizer: an optimizer or its name.
            loss: the student's loss on labels, as for `Model.compile`.
            metrics: a list of metrics of the student's outputs.
            **kwargs: additional arguments of `Model.compile`.
        """
        if loss is None:
            raise ArgumentError("Distiller.compile: 'loss' cannot be `None`")
        if metrics is not None and not isinstance(metrics, (list, tuple)):
            raise ArgumentError(
                "Distiller.compile: metrics must be a list or tuple; received "
                f"{metrics!r}"
            )
        super().compile(optimizer, loss, metrics=metrics, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, **kwargs: Any) -> Any:
        """Return the student's outputs.

        Args:
            inputs: the inputs of the student.
            training: whether to run in training mode; None: the mode of the context.
        """
        return self.student(inputs, training=training, **kwargs)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Return the total loss of a batch; sample weights apply to the label loss.

        Args:
            x: the inputs.
            y: the targets.
            y_pred: the outputs of the student.
            sample_weight: the weights of the samples.
            training: whether this is a step of training.
        """
        if y_pred is None:
            y_pred = self(x, training=training)
        share = self.student_loss_weight
        supervised = distilled = ops.zeros(())
        if share > 0 and y is not None:
            supervised = self._compile_loss(y, y_pred, sample_weight)
        if share < 1:
            distilled = self._distillation_loss(x, y_pred, training)
        total = share * supervised + (1 - share) * distilled
        for loss in self.student.losses:
            total = total + ops.sum(loss)
        weight = samples(x)
        self.student_loss_tracker.update_state(supervised, weight)
        self.distillation_loss_tracker.update_state(distilled, weight)
        self.total_loss_tracker.update_state(total, weight)
        return total

    def _distillation_loss(self, x: Any, y_pred: Any, training: bool) -> Any:
        """Return the weighted sum of the distillation losses."""
        of_teacher, of_student = {}, {}
        if self._teacher_feature_extractor is not None:
            of_teacher = self._teacher_feature_extractor(x, training=False)
        else:
            of_teacher[_FINAL] = self.teacher(x, training=False)
        if self._student_feature_extractor is not None:
            of_student = self._student_feature_extractor(x, training=training)
        of_student = {**of_student, _FINAL: y_pred}
        total = ops.zeros(())
        pairs = zip(
            self.distillation_losses, self.distillation_loss_weights, strict=True
        )
        for loss, weight in pairs:
            teacher = of_teacher[getattr(loss, "teacher_layer_name", None) or _FINAL]
            student = of_student[getattr(loss, "student_layer_name", None) or _FINAL]
            loss.validate_outputs(teacher, student)
            value = loss.compute_loss(teacher, student)
            if getattr(value, "shape", ()):
                raise ArgumentError(
                    f"Distiller: {type(loss).__name__}.compute_loss must return a "
                    f"scalar; received shape {tuple(value.shape)}"
                )
            total = total + weight * value
        return total


def _checked_share(value: Any) -> float:
    if not is_real(value) or not 0 <= value <= 1:
        raise ArgumentError(
            "Distiller: student_loss_weight must be a number and between 0.0 and 1.0; "
            f"received {value!r}"
        )
    return value


def _check_models(teacher: Any, student: Any) -> None:
    """Raise ArgumentError unless the known input and output shapes match."""
    for role, model in (("Teacher", teacher), ("Student", student)):
        if not isinstance(model, Model):
            raise ArgumentError(
                f"Distiller: {role} must be a Model; received {type(model).__name__}"
            )
    for attribute in ("inputs", "outputs"):
        structures = [getattr(model, attribute, None) for model in (teacher, student)]
        if None not in structures:
            symbols = [tree.flatten(structure) for structure in structures]
            if len(symbols[0]) != len(symbols[1]):
                raise ArgumentError(
                    f"Distiller: teacher and student differ in the number of "
                    f"{attribute}: {len(symbols[0])} and {len(symbols[1])}"
                )
            for pair in zip(*symbols, strict=True):
                _check_symbols(attribute.removesuffix("s"), *pair)


def _check_symbols(attribute: str, teacher: Any, student: Any) -> None:
    fits = len(teacher.shape) == len(student.shape) and all(
        a == b or None in (a, b)
        for a, b in zip(teacher.shape, student.shape, strict=True)
    )
    if not fits:
        raise ArgumentError(
            f"Distiller: Teacher and student {attribute} shapes are incompatible: "
            f"{teacher.shape} and {student.shape}"
        )
    if teacher.dtype != student.dtype:
        raise ArgumentError(
            f"Distiller: Teacher and student {attribute} dtypes must match; received "
            f"{teacher.dtype} and {student.dtype}"
        )
