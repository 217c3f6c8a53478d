"""The wire: tally.proto, the code generated from it, and how a channel is opened."""
