"""Finds the fastest variant of an operation on a device, remembers it, serves it."""
