"""The parts of `tools/compare/run`."""
