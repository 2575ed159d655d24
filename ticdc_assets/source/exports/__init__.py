"""Exports of a database: the files that Dumpling writes, and their contents."""
