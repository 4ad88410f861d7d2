"""Running a design without a board: its hardware, or its exported C, compiled to machine code behind a link."""
