"""LoRA adapters in PEFT's format: adapter_model.safetensors and its config.

https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toolkit.core.variable import assign_all
from toolkit.errors import ArgumentError, ModelFileError, UnsupportedError
from toolkit.files.staging import replace_files
from toolkit.layers.conv import Conv1D, Conv2D, Conv3D, Convolution
from toolkit.layers.embedding import Embedding, ReversibleEmbedding
from toolkit.models.saving.low_rank_weights import adapted_layers
from toolkit.models.saving.name_maps import source_of
from toolkit.models.saving.weight_names import named_weights
from toolkit.reading.file_errors import check_present
from toolkit.reading.safetensors import open_safetensors, prepare_file, write_prepared
from toolkit.reading.text import parse_json
from toolkit.type_aliases import Array

if TYPE_CHECKING:
    from toolkit.models.model import Model

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PREFIX = "base_model.model."
_MAX_CONFIG = 4_000_000  # bytes
_UNSUPPORTED = ("use_dora", "lora_bias", "use_qalora", "modules_to_save")


class _Adaptation(NamedTuple):
    """Layer with the name of its module in torch, and the factors A and B."""

    layer: Any
    module: str
    factors: tuple[Any, Any]

    @property
    def names(self) -> tuple[str, str]:
        """Return the names of both arrays."""
        if isinstance(self.layer, Embedding):
            names = "lora_embedding_A", "lora_embedding_B"
        else:
            names = "lora_A.weight", "lora_B.weight"
        a, b = (f"{_PREFIX}{self.module}.{name}" for name in names)
        return a, b

    def to_file(self) -> tuple[Array, Array]:
        """Return the factors in the layout of the file."""
        a, b = (np.asarray(factor) for factor in self.factors)
        rank = a.shape[-1]
        if isinstance(self.layer, Convolution):
            return np.moveaxis(a, (-1, -2), (0, 1)), b.T.reshape(
                -1, rank, *[1] * self.layer.rank
            )
        return a.reshape(-1, rank).T, b.T

    def from_file(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return the factors from the file; raise if the shapes differ."""
        expected = [x.shape for x in self.to_file()]
        if [a.shape, b.shape] != expected:
            raise ModelFileError(
                f"{self.module}: expected factors of the shapes {expected}; the file "
                f"has {[a.shape, b.shape]}"
            )
        if isinstance(self.layer, Convolution):
            return np.moveaxis(a, (0, 1), (-1, -2)), b.reshape(b.shape[:2]).T
        return a.T.reshape(self.factors[0].shape), b.T


def save_adapters(model: Any, path: Path, mapping: Any) -> None:
    """Write the factors of all adapted layers, and the config with their scales.

    Raises:
        ArgumentError: no layer is adapted, or the file has another name.
        UnsupportedError: PEFT does not support these factors.
    """
    adaptations = _adaptations(model, mapping, "save_weights")
    arrays: dict[str, Array] = {}
    for adaptation in adaptations:
        arrays.update(zip(adaptation.names, adaptation.to_file(), strict=True))
    config = json.dumps(_config(adaptations), indent=2)
    head, values = prepare_file(arrays, {"format": "pt"})

    def write(folder: Path) -> None:
        Path(folder, CONFIG).write_text(config, "utf-8")
        write_prepared(Path(folder, WEIGHTS), head, values)

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_files([path.with_name(CONFIG), path], write)


def load_adapters(model: Any, path: Path, mapping: Any) -> None:
    """Load the factors of all adapted layers, or none on error.

    Raises:
        ModelFileError: the file adapts other layers, or in another way.
    """
    adaptations = _adaptations(model, mapping, "load_weights")
    _check_scales(adaptations, path.with_name(CONFIG))
    with open_safetensors(path) as file:
        names = {name for adaptation in adaptations for name in adaptation.names}
        if names != file.arrays.keys():
            missing_names, unexpected_names = (
                names - file.arrays.keys(),
                file.arrays.keys() - names,
            )
            raise ModelFileError(
                f"{str(path)!r}: expected the factors of the layers with `enable_lora`"
                f"; missing {sorted(missing_names)}; unexpected "
                f"{sorted(unexpected_names)}"
            )
        pairs: list[tuple[Any, Array]] = []
        for adaptation in adaptations:
            a, b = (file.arrays[name].read() for name in adaptation.names)
            pairs += zip(adaptation.factors, adaptation.from_file(a, b), strict=True)
    assign_all(pairs)


def _adaptations(model: Model, mapping: Any, method: str) -> list[_Adaptation]:
    names = {weight: name for name, weight in named_weights(model, method).items()}
    adaptations = []
    for layer, factors in adapted_layers(model):
        name = names[factors[0]].rpartition("/")[0]
        adaptations.append(_Adaptation(layer, _module(layer, name, mapping), factors))
        _check_supported(layer, method)
    if not adaptations:
        raise ArgumentError(
            f"{method}: adapters=True: no layer has a low-rank adaptation; call "
            "`enable_lora` of a layer first"
        )
    return adaptations


def _module(layer: Any, name: str, mapping: Any) -> str:
    """Return the name of a layer's module in torch, from the mapping."""
    if mapping is None:
        return name.replace("/", ".")
    weight = f"{name}/{layer._adapted}"
    source = source_of(weight, mapping)
    if source is None or len(source.names) != 1 or source.function is not None:
        raise ArgumentError(
            f"adapters=True: expected one name for {weight!r} in the mapping; received "
            f"{source}"
        )
    if source.layout is not None and re.search(r"[\d()]", source.layout.text):
        raise UnsupportedError(
            f"adapters=True: {weight}: the layout {source.layout.text!r} splits or "
            "joins axes, but the factors of PEFT cannot represent that; save merged "
            "weights"
        )
    return source.names[0].removesuffix(".weight")


def _check_supported(layer: Any, method: str) -> None:
    """Raise unless PEFT supports the factors of a layer."""
    if isinstance(layer, Convolution):
        is_supported = isinstance(layer, (Conv1D, Conv2D, Conv3D)) and layer.groups == 1
    elif isinstance(layer, Embedding):
        is_supported = not isinstance(layer, ReversibleEmbedding)
    else:
        layout = layer._scale_layout()
        rank = len(layer._adapter.shape)
        first = {axis % rank for axis in layout.shared}
        is_supported = layout.is_matrix and first == set(range(rank - 1))
    if not is_supported:
        raise UnsupportedError(
            f"{method}: adapters=True: {layer.name}: PEFT has no factors for a "
            f"{type(layer).__name__} with a weight of the shape "
            f"{tuple(layer._adapter.shape)}; expected a Dense, Embedding or ungrouped "
            "convolution, or an EinsumDense that sums over all axes of its kernel but "
            "the last; save merged weights"
        )


# --- config ---------------------------------------------------------------------------


def _config(adaptations: list[_Adaptation]) -> dict[str, Any]:
    """Return the config of PEFT; modules with uncommon settings become patterns."""
    ranks = {x.module: int(x.layer.lora_rank) for x in adaptations}
    alphas = {x.module: x.layer.lora_alpha for x in adaptations}
    rank, alpha = (Counter(x.values()).most_common(1)[0][0] for x in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {m: r for m, r in ranks.items() if r != rank},
        "alpha_pattern": {m: a for m, a in alphas.items() if a != alpha},
        "target_modules": sorted(ranks),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _check_scales(adaptations: list[_Adaptation], path: Path) -> None:
    """Raise unless the layers' scales equal the scales in the config."""
    check_present(path)
    if path.stat().st_size > _MAX_CONFIG:
        raise ModelFileError(f"{str(path)!r}: expected a config of at most 4 MB")
    config = parse_json(path.read_bytes(), str(path))
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ModelFileError(f"{str(path)!r}: expected the config of a PEFT LoRA")
    used = [name for name in _UNSUPPORTED if config.get(name)]
    if used or config.get("bias", "none") != "none":
        raise UnsupportedError(
            f"{str(path)!r}: expected a plain LoRA; received {used or ['bias']}"
        )
    for layer, module, _ in adaptations:
        rank = _setting(config, "rank_pattern", "r", module)
        alpha = _setting(config, "alpha_pattern", "lora_alpha", module)
        if not (_is_number(rank) and _is_number(alpha) and rank > 0):
            raise ModelFileError(
                f"{str(path)!r}: expected numbers for r and lora_alpha"
            )
        scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
        if not math.isclose(scale, layer._adapter._scale(), rel_tol=1e-6):
            raise ModelFileError(
                f"{module}: the file has the rank {rank} and the scale {scale}; the "
                f"layer {layer.name!r} has {layer.lora_rank} and "
                f"{layer._adapter._scale()}; "
                f"call enable_lora({rank}, lora_alpha={scale * rank})"
            )


def _setting(config: Mapping[str, Any], pattern: str, name: str, module: str) -> Any:
    """Return a setting of a module; keys of patterns are its name or a suffix."""
    patterns = config.get(pattern)
    for key, value in (patterns if isinstance(patterns, dict) else {}).items():
        if key == module or module.endswith(f".{key}"):
            return value
    return config.get(name)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
