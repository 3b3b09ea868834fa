"""The command line, one module per command group.
Reads arguments and configurations, calls the packages below, prints their results.
Heavy imports happen inside the commands, so that `refusal --help` answers at once."""
