"""Devices: what runs a kernel, with a stable identity."""
