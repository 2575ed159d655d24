"""Modules without TiCDC: errors, isolation, progress, the machine, compiled loops."""
