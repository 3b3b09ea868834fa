"""The `refusal` command, in `refusal.cli`."""
