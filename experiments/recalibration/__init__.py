"""New thresholds and certificates of dials for the prompts that are served, without fitting anything again."""
