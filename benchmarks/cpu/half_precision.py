"""`fit` in mixed_bfloat16, compared with float32 and torch's autocast to bfloat16.

    python benchmarks/cpu/half_precision.py --threads 2 --peer-python PEERS/bin/python
    python benchmarks/cpu/half_precision.py --only gpt

It times a step of an epoch, with the networks, data and optimizers of `toolkit.bench`,
and ResNet-50 on 8 images of 224². torch runs a handwritten loop, eager and compiled,
channels last.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

from harness import Candidate, main

CASES = ("mnist_mlp", "cifar_cnn", "gpt", "resnet50")


def workload_of(case):
    """Return the network, its data, and the number of steps per epoch."""
    from toolkit.bench.workloads import WORKLOADS, Workload, small_images

    if case != "resnet50":
        return WORKLOADS[f"{case}/fit"]
    images = partial(small_images.func, (224, 224, 3))
    return Workload("ResNet-50 `fit`, batch 8", "fit", resnet50, images, 8, 2)


def resnet50(keras):
    """Build the application, with trainable weights."""
    model = keras.applications.ResNet50(weights=None, classes=10)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def with_toolkit(policy, case):
    """Return an epoch of `fit` under a policy, and its steps."""
    import toolkit

    toolkit.config.set_dtype_policy(policy)
    workload = workload_of(case)
    model = workload.build(toolkit)
    x, y = workload.make_data()
    return partial(model.fit, x, y, workload.batch, verbose=0), workload.steps


def with_torch(is_compiled, is_half, case):
    """Return a handwritten epoch, and its steps."""
    import peers_torch

    if case == "resnet50":
        import torchvision

        recipe = peers_torch.Recipe(
            partial(torchvision.models.resnet50, num_classes=10),
            peers_torch.momentum,
            hits=peers_torch.same_class,
        )
    else:
        recipe = peers_torch.RECIPES[case]
    workload = workload_of(case)
    epoch = peers_torch.epochs(recipe, workload, is_compiled, is_half)
    epoch()
    return epoch, workload.steps


CANDIDATES = (
    Candidate("toolkit bfloat16", partial(with_toolkit, "mixed_bfloat16")),
    Candidate("toolkit float32", partial(with_toolkit, "float32")),
    Candidate("torch bfloat16", partial(with_torch, False, True), peer=True),
    Candidate("torch.compile bfloat16", partial(with_torch, True, True), peer=True),
    Candidate("torch.compile float32", partial(with_torch, True, False), peer=True),
)

if __name__ == "__main__":
    main(__doc__, CASES, CANDIDATES)
