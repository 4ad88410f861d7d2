"""Models as files for other tools: one module or package per format, each imported when it is used."""
