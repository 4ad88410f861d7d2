"""The build folder: its artefacts, its manifest, and the signatures that say who made them."""
