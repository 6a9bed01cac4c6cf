"""Export a trained model, and call it from C, C++, Rust, Go and JavaScript.

    python examples/native/callers.py --output build

The script compiles each caller if its tools are installed. A caller reads the test
images and prints the class of each. The script compares the classes with the
predictions of the model in Python.
"""

import argparse
import shutil
import subprocess
from pathlib import Path

import numpy as np

import toolkit
from toolkit import layers
from toolkit.datasets import digits

HERE = Path(__file__).parent
C_FLAGS = ["-O2", "-Wall", "-Wextra", "-Werror"]
# Language -> required tools, compiler command, run command.
CALLERS = {
    "c": (["cc"], ["cc", *C_FLAGS, "caller.c", "libdigits.a", "-lpthread", "-o", "c"]),
    "c++": (
        ["c++"],
        ["c++", *C_FLAGS, "-std=c++17", "caller.cpp", "libdigits.a", "-lpthread"]
        + ["-o", "c++"],
    ),
    "rust": (
        ["rustc"],
        ["rustc", "-O", "--edition", "2021", "caller.rs", "-L", ".", "-l"]
        + ["static=digits", "-o", "rust"],
    ),
    "go": (["go", "cc"], ["go", "build", "-o", "go", "caller.go"]),
    "javascript": (["node"], None),
}


def build_model():
    """Return a model from pixels, (batch, 8, 8, 1) in [0, 16], to probabilities."""
    return toolkit.Sequential(
        [
            toolkit.Input((8, 8, 1), name="images"),
            layers.Rescaling(1 / 16),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def train(epochs):
    """Return a trained model of digits, and test images: (359, 8, 8, 1)."""
    toolkit.utils.set_random_seed(0)
    (x_train, y_train), (x_test, _) = digits.load_data()
    model = build_model()
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(x_train[..., None], y_train, epochs=epochs, verbose=0)
    return model, x_test[..., None].astype("float32")


def export(model, images, folder):
    """Write the libraries, the images and the callers into a folder."""
    model.export(folder / "libdigits.a", verbose=False)
    web = folder / "web"  # its header differs
    web.mkdir(exist_ok=True)
    try:
        model.export(web / "digits.wasm", verbose=False)
    except toolkit.errors.MissingLinkerError as error:
        print(error)
    (folder / "images.f32").write_bytes(images.tobytes())
    for source in [*HERE.glob("caller.*"), HERE / "threads.c"]:
        shutil.copy(source, folder)


def call(language, folder):
    """Return the classes that a caller prints, or None if its tools are missing."""
    needs, build = CALLERS[language]
    is_built = build or (folder / "web" / "digits.wasm").exists()
    if not all(map(shutil.which, needs)) or not is_built:
        return None
    if build:
        subprocess.run(build, cwd=folder, check=True)
    command = [f"./{language}"] if build else ["node", "caller.mjs"]
    process = subprocess.run(
        [*command, "images.f32"], cwd=folder, check=True, capture_output=True, text=True
    )
    return np.array(process.stdout.split(), "int64")


def main(arguments=None):
    """Export the model, run every caller, and return the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="native", help="the folder")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)

    model, images = train(options.epochs)
    export(model, images, options.output)
    expected = model.predict(images, verbose=0).argmax(-1)
    agreements = []
    for language in CALLERS:
        classes = call(language, options.output)
        if classes is None:
            print(f"{language}: its tools are not installed")
            continue
        same = np.array_equal(classes, expected)
        print(f"{language}: {'the same classes' if same else 'OTHER CLASSES'}")
        agreements.append(same)
    print(f"test callers that agree {np.mean(agreements):.2f}")
    return model


if __name__ == "__main__":
    main()
