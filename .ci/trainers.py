"""Trains the digits networks in full: accuracy, and the same weights every time.

An example prints its result in its last line, which ends in "accuracy 0.9876", and has
`main(arguments)`, which returns the trained model.
"""

import os
import re
import subprocess
import sys

ACCURACY = {"digits_cnn": 0.985, "digits_mlp": 0.965}
DIGEST = """
import hashlib, runpy, sys
model = runpy.run_path(sys.argv[1])["main"]([])
weights = b"".join(array.tobytes() for array in model.get_weights())
print("weights", hashlib.sha256(weights).hexdigest())
"""


def train(name: str, hash_seed: str) -> tuple[float, str]:
    """Train an example in a fresh process: its test accuracy and its weights' hash."""
    done = subprocess.run(
        [sys.executable, "-c", DIGEST, f"examples/{name}.py"],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    *_, result, weights = done.stdout.strip().splitlines()
    print(f"{name}: {result}; {weights}", flush=True)
    found = re.search(r"accuracy[ :=]+([01]\.\d+)", result)
    assert found, f"{name}: the last line has no accuracy: {result!r}"
    return float(found[1]), weights


def main() -> int:
    """Return 1 if a network is not good enough or not the same twice."""
    failures = []
    for name, wanted in ACCURACY.items():
        accuracy, weights = train(name, hash_seed="0")
        if accuracy < wanted:
            failures.append(f"{name}: expected accuracy {wanted}; received {accuracy}")
        if name == "digits_cnn" and train(name, hash_seed="1")[1] != weights:
            failures.append(f"{name}: the same seed gave other weights")
    print("\n".join(failures) or "trainers: accuracy and repeatability as promised")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
