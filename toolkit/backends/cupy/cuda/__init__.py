"""Generated CUDA: kernel sources and launches as plain data, without a device."""
