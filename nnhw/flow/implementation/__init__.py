"""From a design to a bitstream: synthesis, rewriting of the netlist, place and route, contents of memories."""
