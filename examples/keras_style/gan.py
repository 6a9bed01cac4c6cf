"""Train a generative adversarial network: two optimizers in one train_step."""

import numpy as np

import toolkit as keras
from toolkit import layers, ops


class GAN(keras.Model):
    """A generator of points on a ring, and a discriminator."""

    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.seed_generator = keras.random.SeedGenerator(1337)
        self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
        self.g_loss_tracker = keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile(optimizer=None, loss=None)
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn
        d_optimizer.build(self.discriminator.trainable_variables)
        g_optimizer.build(self.generator.trainable_variables)

    @property
    def metrics(self):
        return [self.d_loss_tracker, self.g_loss_tracker]

    def _noise(self, count):
        return keras.random.normal((count, self.latent_dim), seed=self.seed_generator)

    def train_step(self, data):
        real = data[0] if isinstance(data, tuple) else data
        count = ops.shape(real)[0]

        points = ops.concatenate([self.generator(self._noise(count)), real], axis=0)
        labels = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))], axis=0)
        with keras.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(points))
        variables = self.discriminator.trainable_variables
        self.d_optimizer.apply(tape.gradient(d_loss, variables), variables)

        with keras.GradientTape() as tape:
            judged = self.discriminator(self.generator(self._noise(count)))
            g_loss = self.loss_fn(ops.zeros((count, 1)), judged)
        variables = self.generator.trainable_variables
        self.g_optimizer.apply(tape.gradient(g_loss, variables), variables)

        self.d_loss_tracker.update_state(d_loss)
        self.g_loss_tracker.update_state(g_loss)
        return {m.name: m.result() for m in self.metrics}


def network(inputs, outputs):
    """Return a small dense network."""
    return keras.Sequential(
        [
            keras.Input(shape=(inputs,)),
            layers.Dense(64),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Dense(64),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Dense(outputs),
        ]
    )


def main():
    """Train, evaluate, and return the results."""
    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 4000)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    ring = (ring + rng.normal(0, 0.02, ring.shape)).astype("float32")

    gan = GAN(network(2, 1), network(8, 2), latent_dim=8)
    gan.compile(
        d_optimizer=keras.optimizers.Adam(5e-4, beta_1=0.5),
        g_optimizer=keras.optimizers.Adam(5e-4, beta_1=0.5),
        loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    gan.fit(ring, batch_size=64, epochs=25, verbose=0)
    generated = gan.generator.predict(rng.normal(size=(1000, 8)), verbose=0)
    distance = float(np.mean(np.abs(np.linalg.norm(generated, axis=1) - 1)))
    print(f"mean distance from the ring: {distance:.3f}")
    return distance


if __name__ == "__main__":
    assert main() < 0.25
