"""Decode: one query per head against a key-value cache."""
