"""Function secret sharing: keys that share a function among servers. No I/O."""
