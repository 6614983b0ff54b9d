"""Builders: each compiles a candidate once, in a child process of its own."""
