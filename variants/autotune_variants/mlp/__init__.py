"""The gated MLP, alone and behind a normalisation: operations and their variants."""
