"""What a run is given. Question: which prompts, which settings, which directory?
Reads the configuration and the prompts; writes `manifest.json` and the JSON of the stages.
Holds also what every room needs to report: progress, charts, wording."""
