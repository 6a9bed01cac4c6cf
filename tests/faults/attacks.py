"""All attacks."""

from tests.faults import (
    attacks_by_archives,
    attacks_by_configs,
    attacks_by_data,
    attacks_by_onnx,
    attacks_by_safetensors,
    attacks_by_weights,
    attacks_on_zips,
)
from tests.faults.attack_list import ATTACKS, HARMLESS, SECRET

PARTS = (attacks_on_zips, attacks_by_configs, attacks_by_weights, attacks_by_archives)
PARTS += (attacks_by_data, attacks_by_onnx, attacks_by_safetensors)

__all__ = ["ATTACKS", "HARMLESS", "PARTS", "SECRET"]
