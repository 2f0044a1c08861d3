//! Tests with a real node.
