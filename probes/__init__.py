"""Arrays to probes, directions and their statistics. Pure mathematics: no model, no file format of extract's."""
