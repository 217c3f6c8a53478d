"""Sans-IO protocol cores: bytes in, messages out; no sockets, no clock, no files."""
