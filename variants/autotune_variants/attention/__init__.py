"""Attention: its operations and the arrangements that compute them."""
