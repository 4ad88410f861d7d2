"""Models as files for other tools: one module per format, each imported when it is used."""
