"""Hardware against the integer graph: the simulation at every layer boundary, and the netlist that is placed."""
