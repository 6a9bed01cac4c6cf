"""Trainings for the tests: `job.py FOLDER` runs them on Ray, `job.py` alone as a rank.

Each training writes a file with the hash of the weights of each rank to its folder.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import toolkit as tk
from toolkit import comm


class KillOnce(tk.callbacks.Callback):
    """Callback that kills rank 1 before its third epoch, if a file is absent."""

    def __init__(self, path):
        super().__init__()
        self.path = Path(path)

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and comm.world().rank == 1 and not self.path.exists():
            self.path.touch()
            time.sleep(5)  # Ray collects the reports of the workers each second
            os.kill(os.getpid(), signal.SIGKILL)


def create_model():
    tk.utils.set_random_seed(0)
    model = tk.Sequential([tk.Input((8,)), tk.layers.Dense(16, activation="relu")])
    model.add(tk.layers.Dense(4))
    model.compile("adam", "mse")
    return model


def create_data():
    return np.random.default_rng(0).normal(size=(131, 8)).astype("float32")


def digest(model):
    content = b"".join(array.tobytes() for array in model.get_weights())
    return hashlib.sha256(content).hexdigest()


def write(config, **values):
    values |= {"size": comm.world().size, "threads": os.environ["TOOLKIT_NUM_THREADS"]}
    values["secrets"] = [n for n in os.environ if n.startswith("TOOLKIT_JOB")]
    path = Path(config["folder"], f"{config['name']}-{comm.world().rank}.json")
    path.write_text(json.dumps(values), encoding="utf-8")


def train(config):
    """Train on arrays, which all ranks have."""
    tk.distribution.set_distribution(tk.distribution.DataParallel(shards=4))
    model, x, callbacks = create_model(), create_data(), []
    if "folder" in config:
        callbacks = [tk.ray.ReportCheckpointCallback()]
        callbacks += [KillOnce(config["kill"])] if "kill" in config else []
    history = model.fit(
        x, x[:, :4], batch_size=32, epochs=4, callbacks=callbacks, verbose=0
    )
    if "folder" in config:
        write(config, hash=digest(model), epochs=history.epoch)
    else:
        print(digest(model), flush=True)


def train_on_shards(config):
    """Train on shards of Ray Data."""
    import ray.train

    distribution = tk.distribution.DataParallel(auto_shard_dataset=config["auto"])
    tk.distribution.set_distribution(distribution)
    shard = ray.train.get_dataset_shard("train")
    data = tk.ray.dataset(shard, 16, features="x", labels="y")
    rows = sum(len(x) for x, _ in data)
    model = create_model()
    callback = tk.ray.ReportCheckpointCallback(metrics=["loss"])
    history = model.fit(data, epochs=3, callbacks=[callback], verbose=0)
    write(config, hash=digest(model), rows=rows, losses=history.history["loss"])


def run_all(folder):
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    def run(function, name, datasets=None, **config):
        trainer = tk.ray.Trainer(
            function,
            train_loop_config={"folder": folder, "name": name, **config},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                name=name,
                storage_path=f"{folder}/storage",
                failure_config=FailureConfig(max_failures=1 if "kill" in config else 0),
            ),
            datasets=datasets,
            timeout=60,
        )
        result = trainer.fit()
        Path(folder, f"{name}-metrics.json").write_text(
            json.dumps(result.metrics), encoding="utf-8"
        )

    ray.init(num_cpus=4, log_to_driver=False)
    run(train, "arrays")
    run(train, "killed", kill=f"{folder}/kill")
    columns = ray.data.from_numpy(create_data()).map_batches(
        lambda batch: {"x": batch["data"], "y": batch["data"][:, :4]},
        batch_format="numpy",
    )
    run(train_on_shards, "shards", {"train": columns}, auto=False)
    try:
        run(train_on_shards, "divided", {"train": columns}, auto=True)
    except ray.train.TrainingFailedError as error:
        Path(folder, "divided-error").write_text(str(error), encoding="utf-8")


if __name__ == "__main__":
    run_all(sys.argv[1]) if len(sys.argv) > 1 else train({})
