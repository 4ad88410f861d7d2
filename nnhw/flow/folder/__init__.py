"""The build folder: its artefacts, its manifest, and who made them."""
