"""Two parties compute on both their records: circuits, garbling, oblivious transfer, sessions."""
