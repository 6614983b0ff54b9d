"""One checker a file, named for what it checks. Checkers measure; the policy judges."""
