"""The server and coordinator processes: shells, ledgers, identities."""
