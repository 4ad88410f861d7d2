"""From a design to a bitstream: synthesis, what is changed in the netlist, place and route, contents of memories."""
