"""The report: the results of a run in words, tables and figures.
Reads the files of one run or of several.
Writes `report.html` and `figures/`."""
