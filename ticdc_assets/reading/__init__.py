"""Mirrors, histories and views, now and as of any TSO."""
