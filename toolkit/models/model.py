"""Model: layers that are trained, evaluated, summarized and saved together."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any, Self

from toolkit import models
from toolkit.buffer_pool import release_spare_memory
from toolkit.console.tracebacks import without_frames
from toolkit.definitions import foreign_names, hints
from toolkit.errors import ArgumentError
from toolkit.export.formats import export_model
from toolkit.layers.layer import Layer
from toolkit.models import saving
from toolkit.models.quantizing import QuantizableModel
from toolkit.models.saving.json_config import config_text
from toolkit.models.saving.state_tree import assign_state_tree, state_tree
from toolkit.models.summary import print_summary, summary_html
from toolkit.models.training.trainer import Trainer

RESERVED = (
    "`Model.layers` attribute is reserved and cannot be set; use another attribute "
    "name for layers"
)


def is_functional_call(args: Any, kwargs: Any) -> bool:
    """Return whether these constructor arguments are inputs and outputs."""
    return (
        len(args) == 2
        or (len(args) == 1 and "outputs" in kwargs)
        or ("inputs" in kwargs and "outputs" in kwargs)
    )


class Model(QuantizableModel, Trainer, Layer):
    """Group of layers with `fit`, `evaluate` and `predict`.

    There are three ways to create one: `Model(inputs, outputs)` from symbolic tensors,
    a subclass that creates layers in `__init__` and calls them in `call`, or a
    `Sequential`.

    Args:
        inputs: a symbolic tensor from `Input`, or a nest of them, or of intermediate
            symbols.
        outputs: a symbolic tensor computed from the inputs, or a nest of them.
        name: the name; generated from the class name if None.
        trainable: whether optimizers update the weights.

    Example:
        >>> import toolkit
        >>> inputs = toolkit.Input((3,))
        >>> outputs = toolkit.layers.Dense(2)(inputs)
        >>> toolkit.Model(inputs, outputs).output_shape
        (None, 2)
    """

    if TYPE_CHECKING:  # not the one of the base class of steps
        __call__ = Layer.__call__

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if cls is Model and is_functional_call(args, kwargs):
            functional: Any = models.Functional
            cls = functional
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if is_functional_call(args, kwargs):
            functional: Any = models.Functional
            _derive_from(type(self), functional)
            functional.__init__(self, *args, **kwargs)
        elif type(self) is Model and (
            args or "inputs" in kwargs or "outputs" in kwargs
        ):
            raise ArgumentError(
                "Model: expected inputs and outputs, as in Model(inputs, outputs); "
                f"received {len(args)} positional and the keywords {sorted(kwargs)}"
            )
        else:
            Layer.__init__(self, *args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; a subclass defines it.

        Returns:
            The outputs.
        """
        fix = "; rename `forward` to `call`" if hasattr(self, "forward") else ""
        raise NotImplementedError(
            f"Model {type(self).__name__} does not define `call`{fix}"
        )

    def _defines_call(self) -> bool:
        return type(self).call is not Model.call

    @property
    def layers(self) -> list[Layer]:
        """Return the direct sublayers."""
        return self._flatten_layers(include_self=False, recursive=False)

    @layers.setter
    def layers(self, value: Any) -> None:
        raise AttributeError(RESERVED)

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """Return the layer with this name, or at this index of `layers`.

        Args:
            name: the name of a layer.
            index: the index in `layers`, instead of the name.
        """
        if (name is None) == (index is None):
            raise ArgumentError(
                f"get_layer: expected a name or an index; received name={name!r}, "
                f"index={index!r}"
            )
        layers = self.layers
        if index is not None:
            if not -len(layers) <= index < len(layers):
                raise ArgumentError(
                    f"get_layer: the model has {len(layers)} layers; received "
                    f"index={index}"
                )
            return layers[index]
        for layer in layers:
            if layer.name == name:
                return layer
        raise ArgumentError(
            f"get_layer: expected one of {[layer.name for layer in layers]}; "
            f"received {name!r}"
        )

    def summary(
        self,
        line_length: int | None = None,
        positions: Any = None,
        print_fn: Callable[[str], Any] | None = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: Any = None,
    ) -> None:
        """Print a table of layers, their output shapes and numbers of parameters.

        Args:
            line_length: the width of the table in characters.
            positions: the end of each column, in characters or as fractions of the
                width.
            print_fn: a function of the whole text; `print` by default.
            expand_nested: whether to show the layers of nested models.
            show_trainable: whether to show which layers are trainable.
            layer_range: names, or patterns of names, of the first and last layer
                to show.
        """
        print_summary(
            self,
            line_length,
            positions,
            print_fn,
            expand_nested,
            show_trainable,
            layer_range,
        )

    def _repr_html_(self) -> str:
        return summary_html(self)

    def report(
        self,
        filepath: str | os.PathLike[str],
        data: Any = None,
        class_names: Sequence[str] | None = None,
        history: Any = None,
        batch_size: int = 32,
        measure: bool = True,
    ) -> None:
        """Write a report of the model as an HTML page.

        It shows the architecture and its parameters, the curves of the last training,
        metrics on data, the errors of classifiers, the time and memory of each layer,
        and the compiled steps. The page is self-contained: it needs no network and no
        scripts.

        Args:
            filepath: an ".html" file.
            data: (x, y), (x, y, sample_weight) or x, as arrays, or a data set of
                batches, read once. Without data nothing is evaluated, and measurements
                use zeros.
            class_names: the names of the classes of a classifier.
            history: a History to plot; the one of the last `fit` if None.
            batch_size: the batch size of arrays.
            measure: whether to compile and time each layer, which is slow for large
                models.

        Raises:
            ArgumentError: the model is not built, or an argument does not fit it.

        Example:
            >>> import toolkit
            >>> model = toolkit.Sequential([toolkit.layers.Dense(3)])
            >>> model.build((None, 2))
            >>> model.report("report.html")  # doctest: +SKIP
        """
        # The report's sections need models themselves.
        from toolkit.models.report import write_report

        write_report(self, filepath, data, class_names, history, batch_size, measure)

    @without_frames
    def save(
        self,
        filepath: str | os.PathLike[str] | IO[bytes],
        overwrite: bool = True,
        zipped: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Write the whole model to a `.keras` or `.h5` file; see `saving.save_model`.

        Args:
            filepath: the path, whose ending determines the format; or a binary file
                object.
            overwrite: whether an existing file can be replaced.
            zipped: False for a folder instead of a `.keras` file.
            **kwargs: additional arguments of `saving.save_model`.
        """
        saving.save_model(self, filepath, overwrite, zipped, **kwargs)

    @without_frames
    def save_weights(
        self,
        filepath: str | os.PathLike[str],
        overwrite: bool = True,
        max_shard_size: float | None = None,
        **kwargs: Any,
    ) -> None:
        """Write all weights, and the optimizer's state; see `saving.save_weights`.

        Args:
            filepath: the path: ".weights.h5", or ".weights.json" for several files; or
                ".safetensors", without the optimizer's state.
            overwrite: whether an existing file can be replaced.
            max_shard_size: the maximum size of one file, in gigabytes.
            **kwargs: `mapping`: for ".safetensors", the names in the file;
                `objects_to_skip`: layers to leave out; `adapters`: whether to write
                only low-rank adaptations, in the format of PEFT.
        """
        saving.save_weights(self, filepath, overwrite, max_shard_size, **kwargs)

    @without_frames
    def load_weights(
        self,
        filepath: str | os.PathLike[str],
        skip_mismatch: bool = False,
        **kwargs: Any,
    ) -> None:
        """Load all weights, or none on error; see `saving.load_weights`.

        Args:
            filepath: a file written by `save_weights` or `save` of this package or of
                Keras, or any ".safetensors" file.
            skip_mismatch: whether to load matching weights and warn about the rest.
            **kwargs: `objects_to_skip`: layers to leave unchanged; `by_name`: for older
                files; `mapping`, `ignore`: for ".safetensors"; `adapters`: whether to
                load only low-rank adaptations, in the format of PEFT.
        """
        saving.load_weights(self, filepath, skip_mismatch, **kwargs)
        release_spare_memory()

    @without_frames
    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str | None = None,
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Export the model's computation for programs without Python.

        Args:
            filepath: the path; its ending determines the format if `format` is None.
            format: "native", "onnx", "openvino" or "triton". Formats that need another
                framework to write are rejected.
            verbose: whether to print the path; True by default.
            input_signature: the signature, if the model's inputs do not define it: an
                `InputSpec` with a shape for each input, in the model's nest.
            **kwargs: options of the format; the lists below have all of them.

        Options of "onnx" and "openvino":
            - `opset_version`: the version of the operators, 17 to 24; 20 by default.
            - `dynamic_axes`: names of dynamic extents by input and axis, such as
              {"tokens": {1: "steps"}}.
            - `allow_random`: whether to write operators that draw random numbers.
            - `external_data`, only of "onnx": whether weights of 1 KB and more are in
              a separate file; above 1.5 GB in total by default.
            - `metadata`, only of "onnx": strings by name.

        Options of "native", for the endings .o, .a, .so, .dylib and .wasm:
            - `target`: the processor, "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64"
              for these three, "aarch64", "armv7", "riscv64" or "wasm32"; this machine
              by default.
            - `batch`: one or more batch sizes; 1, 4, 16, 64 and 256 by default.
            - `sizes`: a number for each other dynamic extent, such as {"dim_0_1": 64}.
            - `weights`: "embed" or "file"; "embed" up to 64 MB by default.
            - `threads`: whether the library can run on several threads; by default if
              the target has threads.
            - `linker`: the command of the linker; by default an installed one.
            - `prefix`: the prefix of the C functions; the file name by default.
            - `workspace`: the maximum memory of the default batch sizes, in bytes.

        Options of "triton", whose path is the folder of a model repository:
            - `name`: the name of the model in the repository.
            - `max_batch_size`: the maximum batch size; 32 by default.
            - `opset_version`, `external_data`: as for "onnx".

        Example:
            >>> import toolkit
            >>> layers = [toolkit.Input((3,)), toolkit.layers.Dense(2)]
            >>> model = toolkit.Sequential(layers)
            >>> model.export("model.onnx", opset_version=20)  # doctest: +SKIP
        """
        export_model(self, filepath, format, verbose, input_signature, **kwargs)

    def get_state_tree(self, value_format: str = "backend_tensor") -> dict[str, Any]:
        """Return the values of all variables as nested dicts, by their paths.

        Args:
            value_format: "backend_tensor" or "numpy_array".

        Returns:
            A dict of "trainable_variables", "non_trainable_variables",
            "optimizer_variables" and "metrics_variables".
        """
        return state_tree(self, value_format)

    def set_state_tree(self, state_tree: dict[str, Any]) -> None:
        """Assign the values of a (partial) result of `get_state_tree`.

        Args:
            state_tree: nested dicts of values, by paths of variables.
        """
        assign_state_tree(self, state_tree)

    def to_json(self, **kwargs: Any) -> str:
        """Return the config as JSON, without weights, for `models.model_from_json`.

        Args:
            **kwargs: arguments of `json.dumps`.
        """
        return config_text(self, **kwargs)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Build a model from the result of `get_config`.

        Args:
            config: the result of `get_config`.
            custom_objects: a dict from names to classes or functions that the config
                contains.

        Returns:
            The model, with new weights.
        """
        functional: Any = models.Functional
        keys = ("name", "layers", "input_layers", "output_layers")
        if all(key in config for key in keys) and issubclass(functional, cls):
            return functional.from_config(config, custom_objects)
        return super().from_config(config)


hints.explain_missing(Model, foreign_names.MODELS)


def _derive_from(cls: type, functional: type) -> None:
    """Make a subclass of Model with inputs and outputs a subclass of Functional."""
    if cls is Model or issubclass(cls, functional):
        return
    bases = []
    for base in cls.__bases__:
        if base is Model:
            base = functional
        elif issubclass(base, Model):
            _derive_from(base, functional)
        bases.append(base)
    cls.__bases__ = tuple(bases)
