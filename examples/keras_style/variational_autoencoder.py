"""Train a variational autoencoder: a sampling layer and a custom train_step."""

import numpy as np

import toolkit as keras
from toolkit import layers, ops


class Sampling(layers.Layer):
    """A sample z of the normal distribution from the encoder."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        z_mean, z_log_var = inputs
        epsilon = keras.random.normal(ops.shape(z_mean), seed=self.seed_generator)
        return z_mean + ops.exp(0.5 * z_log_var) * epsilon


class VAE(keras.Model):
    """An encoder and a decoder, with reconstruction loss and divergence."""

    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.decoder = decoder
        self.sampling = Sampling()
        self.reconstruction_tracker = keras.metrics.Mean(name="reconstruction_loss")
        self.kl_tracker = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self):
        return [self.reconstruction_tracker, self.kl_tracker]

    def call(self, inputs):
        z_mean, z_log_var = self.encoder(inputs)
        z = self.sampling([z_mean, z_log_var])
        kl = -0.5 * (1 + z_log_var - ops.square(z_mean) - ops.exp(z_log_var))
        kl_loss = ops.mean(ops.sum(kl, axis=1))
        self.add_loss(kl_loss)
        self.kl_tracker.update_state(kl_loss)
        return self.decoder(z)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        error = ops.sum(ops.square(y - y_pred), axis=1)
        reconstruction = ops.mean(error)
        self.reconstruction_tracker.update_state(reconstruction)
        return reconstruction + sum(self.losses)


def main():
    """Train, evaluate, and return the results."""
    keras.utils.set_random_seed(6)
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(2000, 2)).astype("float32")
    x = np.tanh(hidden @ rng.normal(size=(2, 10)).astype("float32"))

    inputs = keras.Input(shape=(10,))
    h = layers.Dense(32, activation="relu")(inputs)
    encoder = keras.Model(inputs, [layers.Dense(2)(h), layers.Dense(2)(h)])
    decoder = keras.Sequential(
        [keras.Input(shape=(2,)), layers.Dense(32, activation="relu"), layers.Dense(10)]
    )
    vae = VAE(encoder, decoder)
    vae.compile(optimizer=keras.optimizers.Adam(0.005))
    history = vae.fit(x, x, epochs=25, batch_size=64, verbose=0).history
    first, last = (history["reconstruction_loss"][i] for i in (0, -1))
    print(f"reconstruction: {first:.3f} -> {last:.3f}; kl {history['kl_loss'][-1]:.3f}")
    return last / first


if __name__ == "__main__":
    assert main() < 0.5
