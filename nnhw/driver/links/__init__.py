"""Links: ways to a device that is Python code, simulated hardware, or a board at a serial port."""
