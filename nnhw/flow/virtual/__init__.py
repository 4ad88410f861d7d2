"""A design without a board: its hardware, or its exported C, compiled to machine code behind the driver's links."""
