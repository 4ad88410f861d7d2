"""Ways to a device: in Python, in simulated hardware, over a serial port."""
