"""Task scores, one a file: pure functions of two dicts of arrays, higher is better, within [0, 1]."""
