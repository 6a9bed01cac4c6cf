"""Random numbers from an explicit key."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.backends.array.common import Array, Kernels


class Random(Kernels):
    """Random arrays: NumPy's generator on the host, then a copy to `xp`."""

    def random_uniform(
        self, key: Array, *, shape: tuple[int, ...], dtype: str, out: Any = None
    ) -> Array:
        """Return uniform numbers on [0, 1), by Philox 4x64-10.

        The key is the two words of `key`, and the counter starts at 0.
        """
        # The attribute, not an import: NumPy loads its random module on first use.
        words = np.array([int(key[0]), int(key[1])], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=words))
        if self.xp is not np:
            values = generator.random(shape, dtype=dtype)  # type: ignore[call-overload]
            return self._copy_to(
                self._result(out, shape, dtype), self.xp.asarray(values)
            )
        out = self._result(out, shape, dtype)
        return generator.random(dtype=dtype, out=out)  # type: ignore[call-overload]
