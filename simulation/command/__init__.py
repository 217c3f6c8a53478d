"""The command `tally`."""
