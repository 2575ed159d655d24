"""Applying: from changes at a TSO to mirrors and histories, and the account of a cut."""
