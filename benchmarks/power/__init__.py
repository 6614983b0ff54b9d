"""What the benchmark of power is made of: models, faults, honest candidates, gates, and the table."""
