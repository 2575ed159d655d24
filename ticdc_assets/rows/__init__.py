"""Rows of changes and of mirrors: typed, folded, ordered, searched in files."""
