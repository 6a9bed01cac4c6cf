"""Generated CUDA: sources and launches as plain data, made without a device."""
