"""Write all models of `fixtures/whole_models.py` to a folder, for Keras to read.

python -m tests.models.write_whole_files FOLDER
python tests/fixtures/make_keras_files.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np

import toolkit
from tests.fixtures import whole_models


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    outputs = {}
    for name in whole_models.BUILDERS:
        model = whole_models.make(toolkit, name)
        predictions = whole_models.flat(
            model.predict(whole_models.inputs(name), verbose=0)
        )
        outputs |= {f"{name}_{i}": output for i, output in enumerate(predictions)}
        model.save(folder / f"{name}.keras")
        model.save_weights(folder / f"{name}.weights.h5")
        if name not in whole_models.GRAPHLESS:
            model.save(folder / f"{name}.h5")
    np.savez(folder / "outputs.npz", **outputs)


if __name__ == "__main__":
    main()
