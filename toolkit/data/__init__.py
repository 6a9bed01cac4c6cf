"""Data on its way into a model. Stands alone on NumPy."""

from toolkit.data.arrays import ArrayBatches

__all__ = ["ArrayBatches"]
