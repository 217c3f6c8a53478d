"""What any program of several processes costs: bytes, rounds, CPU, memory and time, by role."""
