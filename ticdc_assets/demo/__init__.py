"""The demo: a local broker, an upstream with a shop, and both ways to run it."""
