"""Frames in gateware: received, checked and stored whole; and built, encoded and sent."""
