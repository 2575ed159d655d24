"""Exports of a database: the files that Dumpling writes, and what stands in them."""
