"""The GPU backend: generated CUDA, cuBLASLt and cuDNN over CuPy's memory."""
