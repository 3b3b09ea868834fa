"""Charts: one Altair specification each, for the page, PNG, SVG and the notebook.
Reads rows of numbers that other rooms have measured; knows nothing of runs.
Writes PNG and SVG files; the page and the notebook take the specification itself."""
