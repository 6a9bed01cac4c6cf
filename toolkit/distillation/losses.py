"""Losses between the outputs or features of a student and of its teacher."""

from __future__ import annotations

from typing import Any

from toolkit import losses, ops, tree
from toolkit.arguments import is_real
from toolkit.errors import ArgumentError
from toolkit.serialization.recording import Recorded


def _losses_of(name: str, loss: Any) -> Any:
    """Return the nest of losses for names and losses; None skips an output."""
    losses_nest = tree.map_structure(losses.get, loss)
    if all(leaf is None for leaf in tree.flatten(losses_nest)):
        raise ArgumentError(
            f"{name}: `loss` must contain at least one non-`None` value; received "
            f"{loss!r}"
        )
    return losses_nest


class DistillationLoss(Recorded):
    """Base class of losses between teacher and student.

    A subclass defines `compute_loss`. Its config holds the constructor's arguments.

    Example:
        >>> from toolkit import distillation, ops
        >>> class Apart(distillation.DistillationLoss):
        ...     def compute_loss(self, teacher_outputs, student_outputs, **kwargs):
        ...         return ops.mean(ops.abs(teacher_outputs - student_outputs))
        >>> float(Apart().compute_loss(ops.array([2.0]), ops.array([5.0])))
        3.0
    """

    # Names of the layers to compare; None means the outputs of the models.
    teacher_layer_name: str | None = None
    student_layer_name: str | None = None

    def compute_loss(
        self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any
    ) -> Any:
        """Return the loss, a 0-d tensor, for outputs of the same structure.

        Args:
            teacher_outputs: the outputs of the teacher.
            student_outputs: the outputs of the student.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement compute_loss")

    def validate_outputs(self, teacher_outputs: Any, student_outputs: Any) -> None:
        """Raise ArgumentError if the outputs have different structures.

        Args:
            teacher_outputs: the outputs of the teacher.
            student_outputs: the outputs of the student.
        """
        tree.assert_same_structure(
            *(tree.map_structure(_leaf, x) for x in (teacher_outputs, student_outputs))
        )

    def validate_model_compatibility(self, teacher: Any, student: Any) -> None:
        """Raise ArgumentError if the loss cannot compare these models.

        Args:
            teacher: the teacher.
            student: the student.
        """


def _leaf(x: Any) -> None:
    return None


class _Nested(DistillationLoss):
    """A loss with one term per output; the terms are summed."""

    loss: Any

    def _sum(self, compute: Any, teacher_outputs: Any, student_outputs: Any) -> Any:
        nests = self.loss, teacher_outputs, student_outputs
        terms = tree.map_structure(
            lambda loss, *xs: None if loss is None else ops.mean(compute(loss, *xs)),
            *nests,
        )
        values = [term for term in tree.flatten(terms) if term is not None]
        return ops.sum(ops.stack(values))

    def validate_outputs(self, teacher_outputs: Any, student_outputs: Any) -> None:
        super().validate_outputs(teacher_outputs, student_outputs)
        structure = tree.map_structure(_leaf, self.loss)
        try:
            tree.assert_same_structure(
                structure, tree.map_structure(_leaf, student_outputs)
            )
        except ArgumentError as error:
            raise ArgumentError(
                f"{type(self).__name__}: `loss` must follow the outputs: {error}"
            ) from error


class FeatureDistillation(_Nested):
    """Loss between the features of a student's layer and of a teacher's layer.

    Args:
        loss: a loss or its name; for several outputs, a nest of them, in which None
            skips an output.
        teacher_layer_name: the teacher's layer; its last one if None.
        student_layer_name: the student's layer; its last one if None.

    Example:
        >>> from toolkit import distillation, ops
        >>> loss = distillation.FeatureDistillation("mse")
        >>> float(loss.compute_loss(ops.array([[1.0, 2.0]]), ops.array([[1.0, 4.0]])))
        2.0

    Reference:
        A. Romero et al., FitNets: Hints for Thin Deep Nets,
        https://arxiv.org/abs/1412.6550
    """

    def __init__(
        self,
        loss: Any = "mse",
        teacher_layer_name: str | None = None,
        student_layer_name: str | None = None,
    ) -> None:
        self.loss: Any = _losses_of("FeatureDistillation", loss)
        self.teacher_layer_name = teacher_layer_name
        self.student_layer_name = student_layer_name

    def validate_model_compatibility(self, teacher: Any, student: Any) -> None:
        names = {"teacher": self.teacher_layer_name, "student": self.student_layer_name}
        for (role, name), model in zip(names.items(), (teacher, student), strict=True):
            if name is None:
                continue
            if getattr(model, "inputs", None) is None:
                raise ArgumentError(
                    "FeatureDistillation with specific layer names requires functional "
                    f"or sequential models with known inputs; the {role}, "
                    f"{type(model).__name__} {model.name!r}, is not one"
                )
            try:
                model.get_layer(name=name)
            except ArgumentError as error:
                raise ArgumentError(f"In {role} model: {error}") from error

    def compute_loss(
        self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any
    ) -> Any:
        """Return the mean of the loss over samples, summed over outputs.

        Args:
            teacher_outputs: the outputs of the teacher.
            student_outputs: the outputs of the student.
        """
        return self._sum(
            lambda loss, t, s: loss(t, s), teacher_outputs, student_outputs
        )


class LogitsDistillation(_Nested):
    """Loss between student and teacher logits, both scaled by a temperature.

    With the Kullback-Leibler divergence it is `T**2 * KL(softmax(teacher / T),
    softmax(student / T))` for the temperature T, so that the size of gradients does not
    depend on T. Other losses receive the logits / T.

    Args:
        temperature: above 0; a higher temperature gives softer probabilities.
        loss: a loss or its name; for several outputs, a nest of them, in which None
            skips an output.

    Example:
        >>> from toolkit import distillation, ops
        >>> loss = distillation.LogitsDistillation(temperature=2.0)
        >>> x = ops.array([[1.0, 2.0, 3.0]])
        >>> float(loss.compute_loss(x, x))
        0.0

    Reference:
        G. Hinton et al., Distilling the Knowledge in a Neural Network,
        https://arxiv.org/abs/1503.02531
    """

    def __init__(self, temperature: float = 3.0, loss: Any = "kl_divergence") -> None:
        self.loss: Any = _losses_of("LogitsDistillation", loss)
        if not is_real(temperature) or temperature <= 0:
            raise ArgumentError(
                "LogitsDistillation: temperature must be a number and positive; "
                f"received {temperature!r}"
            )
        self.temperature = temperature

    def compute_loss(
        self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any
    ) -> Any:
        """Return the mean of the loss over samples, summed over outputs.

        Args:
            teacher_outputs: the outputs of the teacher.
            student_outputs: the outputs of the student.
        """
        return self._sum(self._of_output, teacher_outputs, student_outputs)

    def _of_output(self, loss: Any, *logits: Any) -> Any:
        teacher, student = (ops.divide(x, self.temperature) for x in logits)
        if loss is losses.kl_divergence or isinstance(loss, losses.KLDivergence):
            divergence = loss(ops.softmax(teacher), ops.softmax(student))
            return ops.multiply(divergence, self.temperature**2)
        return loss(teacher, student)
