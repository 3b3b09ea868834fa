"""The report. Question: what did the run find, in words and pictures?
Reads the files of one run or of several.
Writes `report.html` and `figures/`."""
