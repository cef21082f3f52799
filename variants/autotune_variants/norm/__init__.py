"""RMS normalisation: operations and their variants."""
