#!/usr/bin/env bash
# Make the environments of the libraries that peers.py compares with, one for each, so
# that none loads another's: benchmarks/peers/make_peers.sh DIR, then peers.py --peers DIR.
#
# About 3 GB. PYTHON chooses the interpreter (3.11 or later). On Linux the package index
# serves torch with CUDA, which is larger and not what is compared: set TORCH_INDEX to
# the index of PyTorch's own builds for CPUs. torch.compile needs a C++ compiler.
set -euo pipefail
folder=${1:?usage: make_peers.sh DIR}

make() { # make NAME REQUIREMENT...
  local python="$folder/$1/bin/python"
  "${PYTHON:-python3}" -m venv "$folder/$1"
  "$python" -m pip install --quiet --upgrade pip
  "$python" -m pip install --quiet "${@:2}"
  "$python" -m pip check
}

mkdir -p "$folder"
make tensorflow tensorflow-cpu==2.21.0 keras==3.15.1
make torch ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch==2.13.0 keras==3.15.1
make jax jax==0.10.2 keras==3.15.1
