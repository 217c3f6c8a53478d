"""What a question would cost and give, before any ε is spent."""
