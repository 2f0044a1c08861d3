"""What `bench/compare/run` is made of."""
