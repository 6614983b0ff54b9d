"""What an honest implementation at a variant's precision may differ by, derived instead of guessed."""
