"""What two servers compute together, in garbled circuits on what they share."""
