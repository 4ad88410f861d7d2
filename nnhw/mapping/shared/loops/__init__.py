"""Loops on a shared engine: the program runs once for each step, and its memory keeps the states."""
