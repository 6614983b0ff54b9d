"""A package, because some test files here share their names with others."""
