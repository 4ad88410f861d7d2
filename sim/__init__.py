"""Benches that run generated hardware in an event-driven simulator, and what they share with other tests."""
