"""What is known of a graph: its nodes, which compiled layer holds which tensor, who is right when two runs differ."""
