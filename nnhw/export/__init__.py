"""Export of models to files for other tools: a module or package for each format, imported when it is used."""
