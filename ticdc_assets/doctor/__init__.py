"""The checks of `ticdc-assets doctor`."""
