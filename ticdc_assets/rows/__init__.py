"""Rows of changes and of mirrors: typed, folded, ordered, found in files."""
