"""Train from TFRecord and HDF5 files, with an input pipeline and augmentation.

    python examples/input_pipeline.py --epochs 15

The script first writes the files: four TFRecord files with the training digits, and one
HDF5 file with the test digits. At the end it prints the statistics of the pipeline for
the last pass. The test accuracy is about 99 %.
"""

import argparse
from pathlib import Path

import h5py
import numpy as np

import toolkit
from toolkit import layers, optimizers
from toolkit.data import (
    AUTOTUNE,
    Dataset,
    FixedLenFeature,
    TFRecordDataset,
    TFRecordWriter,
    make_example,
    parse_example,
)
from toolkit.datasets import digits

FILES = 4
BATCH = 32
FEATURES = {
    "image": FixedLenFeature((), "string"),
    "label": FixedLenFeature((), "int64"),
}


def write_files(folder):
    """Write train-0.tfrecord and more, and test.h5; return the number of examples."""
    (x_train, y_train), (x_test, y_test) = digits.load_data()
    for number in range(FILES):
        with TFRecordWriter(folder / f"train-{number}.tfrecord") as writer:
            for image, label in zip(
                x_train[number::FILES], y_train[number::FILES], strict=True
            ):
                features = {"image": image.tobytes(), "label": int(label)}
                writer.write(make_example(features))
    with h5py.File(folder / "test.h5", "w") as file:
        file.create_dataset("image", data=x_test, chunks=(64, 8, 8))
        file.create_dataset("label", data=y_test)
    return len(x_train)


def parse(records):
    """Return the images, (batch, 8, 8), and labels, (batch,), of a batch of records."""
    features = parse_example(records, FEATURES)
    pixels = np.frombuffer(b"".join(features["image"]), "uint8")
    return pixels.reshape(-1, 8, 8), features["label"]


def shift(batch, seed):
    """Shift each image by up to a pixel in both directions."""
    images, labels = batch
    random = np.random.default_rng(seed)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 8), (1, 2))
    x, y = random.integers(0, 3, (2, len(images)))
    return windows[np.arange(len(images)), x, y], labels


def training_data(folder, seed):
    """Return batches of augmented images; order and shifts differ in each epoch."""
    records = Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False).interleave(
        TFRecordDataset, cycle_length=FILES, num_parallel_calls=AUTOTUNE
    )
    batches = records.shuffle(2_000, seed=seed).batch(BATCH).map(parse)
    seeds = Dataset.random(seed, rerandomize_each_iteration=True)
    # One thread prefetches. More threads help stages that wait or compute for long.
    return Dataset.zip((batches, seeds)).map(shift).prefetch(AUTOTUNE)


def build_model():
    """Return a model from pixels, (batch, 8, 8) in [0, 16], to probabilities."""
    return toolkit.Sequential(
        [
            toolkit.Input((8, 8)),
            layers.Rescaling(1 / 16),
            layers.Reshape((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dropout(0.25),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main(arguments=None):
    """Train the model, print the test accuracy, and return the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default="trained", help="the folder")
    options = parser.parse_args(arguments)

    toolkit.utils.set_random_seed(options.seed)
    folder = options.output / "input_pipeline"
    folder.mkdir(parents=True, exist_ok=True)
    samples = write_files(folder)
    train = training_data(folder, options.seed)
    test = Dataset.from_hdf5(folder / "test.h5", ("image", "label")).batch(256)

    model = build_model()
    steps = options.epochs * -(-samples // BATCH)
    model.compile(
        optimizer=optimizers.Adam(optimizers.schedules.CosineDecay(2e-3, steps)),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(train, epochs=options.epochs)
    print(train.stats())
    _, accuracy = model.evaluate(test, verbose=0)
    model.save(options.output / "input_pipeline.keras")
    history.plot(options.output / "input_pipeline.svg")
    print(f"test accuracy {accuracy:.4f}")
    return model


if __name__ == "__main__":
    main()
