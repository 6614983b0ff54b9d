"""Reads a verdict's measurements: the first divergent node, and who is to blame. Diagnosis never judges."""
