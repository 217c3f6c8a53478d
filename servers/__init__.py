"""The server and coordinator processes: shells, ledgers, identities."""

import protos  # noqa: F401 - before gRPC
