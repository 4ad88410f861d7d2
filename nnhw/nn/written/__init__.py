"""Quantizers that a model computes without a library: they are found by the values that they give."""
