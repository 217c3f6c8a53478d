"""The ring Z_2^64, prime fields, secret sharing over them."""
