"""What is known of a graph: its nodes, which compiled layer holds which tensor, and who is right when two runs differ."""
