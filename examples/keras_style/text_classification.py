"""Classify reviews: TextVectorization, Embedding, a bidirectional LSTM."""

import numpy as np

import toolkit as keras
from toolkit import layers

GOOD = "lovely great excellent wonderful pleasant superb".split()
BAD = "awful bad terrible dreadful boring poor".split()
THINGS = "food film book room staff music story view".split()


def reviews(count, seed=0):
    """Return sentences such as "the food was not awful", and whether they praise."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        good, negated = rng.integers(0, 2, 2)
        word = rng.choice(GOOD if good else BAD)
        text = f"The {rng.choice(THINGS)} was {'not ' * negated}{word}!"
        texts.append(f"{text} We were in the {rng.choice(THINGS)}.")
        labels.append(good ^ negated)
    return np.array(texts), np.array(labels)


def main():
    """Train, evaluate, and return the results."""
    keras.utils.set_random_seed(3)
    x_train, y_train = reviews(1500)
    x_test, y_test = reviews(300, seed=1)

    vectorize = layers.TextVectorization(max_tokens=200, output_sequence_length=12)
    vectorize.adapt(x_train)

    model = keras.Sequential(
        [
            keras.Input(shape=(12,), dtype="int64"),
            layers.Embedding(200, 16, mask_zero=True),
            layers.Bidirectional(layers.LSTM(16)),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.RMSprop(0.01),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(vectorize(x_train), y_train, batch_size=32, epochs=6, verbose=0)
    _, accuracy = model.evaluate(vectorize(x_test), y_test, verbose=0)
    print(f"test accuracy: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    assert main() > 0.95
