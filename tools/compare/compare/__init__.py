"""What `tools/compare/run` is made of."""
