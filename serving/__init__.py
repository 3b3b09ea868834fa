"""An OpenAI-compatible server whose requests carry both thresholds."""
