"""The report page: one interactive HTML file that opens from disk without a network."""
