"""CUDA kernels of the gated MLP, alone and behind a normalisation."""
