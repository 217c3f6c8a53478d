"""Plans the cost and error of a question before any ε is spent."""
