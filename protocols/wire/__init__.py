"""Communication between roles: messages, machines, the message loop and the meter."""
