"""Definitions of your own: `dg scaffold defs` adds them, and they load with the changefeeds."""
