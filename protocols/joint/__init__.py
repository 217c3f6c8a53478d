"""What two servers compute together, in garbled circuits on what they share.

Server 0 garbles and must follow the protocol: one that deviates can leave out noise, or open other
things than were asked.
"""
