"""The machines of a statistic of pairs, one for each role."""
