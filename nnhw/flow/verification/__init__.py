"""Comparing hardware with the integer graph: simulated RTL at every layer boundary, and the placed netlist."""
