"""Networks of `fits.py`, shared by all: each takes `keras`, toolkit or Keras itself.

Each takes one array and returns a compiled model without metrics.
"""

VIT_WIDTH, VIT_HEADS, VIT_BLOCKS, PATCH = 192, 3, 12, 16
VOCABULARY, UNITS, LENGTH = 2000, 256, 32
UNET_FILTERS = (32, 64, 128, 256)


def compiled(model, optimizer, loss):
    """Compile the model."""
    model.compile(optimizer, loss)
    return model


def resnet50(keras):
    """Build ResNet-50: (batch, 224, 224, 3) to 1,000 probabilities."""
    model = keras.applications.ResNet50(weights=None)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    return compiled(model, optimizer, "sparse_categorical_crossentropy")


def mobilenet_v2(keras):
    """Build MobileNetV2: (batch, 128, 128, 3) to 1,000 probabilities."""
    model = keras.applications.MobileNetV2(weights=None, input_shape=(128, 128, 3))
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    return compiled(model, optimizer, "sparse_categorical_crossentropy")


def unet(keras):
    """Build a U-Net with batch norm: (batch, 128, 128, 3) to pixel probabilities."""
    layers = keras.layers

    def convolve_twice(x, filters):
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.Activation("relu")(layers.BatchNormalization()(x))
        return x

    x = images = keras.Input((128, 128, 3))
    skipped = []
    for filters in UNET_FILTERS:
        x = convolve_twice(x, filters)
        skipped.append(x)
        x = layers.MaxPooling2D()(x)
    x = convolve_twice(x, 2 * UNET_FILTERS[-1])
    for filters, skip in zip(reversed(UNET_FILTERS), reversed(skipped), strict=True):
        x = layers.Conv2DTranspose(filters, 2, 2)(x)
        x = convolve_twice(layers.Concatenate()([x, skip]), filters)
    model = keras.Model(images, layers.Conv2D(1, 1, activation="sigmoid")(x))
    return compiled(model, keras.optimizers.Adam(1e-3), "binary_crossentropy")


def vit_tiny(keras):
    """Build ViT-Tiny with mean pooling: (batch, 224, 224, 3) to 1,000 probabilities."""
    layers, length = keras.layers, (224 // PATCH) ** 2

    class Positions(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.positions = layers.Embedding(length, VIT_WIDTH)

        def call(self, x):
            return x + self.positions(keras.ops.arange(length))

    images = keras.Input((224, 224, 3))
    patches = layers.Conv2D(VIT_WIDTH, PATCH, PATCH)(images)
    x = Positions()(layers.Reshape((length, VIT_WIDTH))(patches))
    for _ in range(VIT_BLOCKS):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(VIT_HEADS, VIT_WIDTH // VIT_HEADS)(y, y)
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        y = layers.Dense(4 * VIT_WIDTH, activation="gelu")(y)
        x = x + layers.Dense(VIT_WIDTH)(y)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    model = keras.Model(images, layers.Dense(1000, activation="softmax")(x))
    return compiled(
        model, keras.optimizers.Adam(3e-4), "sparse_categorical_crossentropy"
    )


def seq2seq(keras):
    """Build a GRU encoder and a GRU decoder: (batch, 2, 32) tokens to logits."""
    layers = keras.layers
    texts = keras.Input((2, LENGTH), dtype="int32")
    embed = [layers.Embedding(VOCABULARY, UNITS) for _ in range(2)]
    state = layers.GRU(UNITS)(embed[0](texts[:, 0]))
    written = layers.GRU(UNITS, return_sequences=True)(
        embed[1](texts[:, 1]), initial_state=state
    )
    model = keras.Model(texts, layers.Dense(VOCABULARY)(written))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return compiled(model, keras.optimizers.Adam(1e-3), loss)
