"""The transformer block on CUDA, composed of parts."""
