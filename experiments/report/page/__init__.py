"""The report's page: one HTML file that opens from disk, with no network, and works while it is read."""
