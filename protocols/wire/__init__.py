"""What roles say to each other: messages, machines, the router and the meter."""
