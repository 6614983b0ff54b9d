"""Backends: each opens an artifact in one role and runs tensors through it."""
