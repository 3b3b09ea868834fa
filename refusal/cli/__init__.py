"""The command line, one module a command group.
Reads arguments and configurations, calls the packages below, prints what they found.
Heavy imports happen inside the commands, so that `refusal --help` answers at once."""
