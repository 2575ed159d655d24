"""Tests of what is read from exports."""
