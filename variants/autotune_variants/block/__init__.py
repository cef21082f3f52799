"""The transformer block: operations, and variants composed of those of its parts."""
