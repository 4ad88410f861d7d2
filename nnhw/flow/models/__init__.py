"""From a model as its user has it to the integer graph, with the proof that nothing changed on the way."""
