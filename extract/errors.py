"""The error for a mistake in the user's input. Its message names what was given, what was expected, what to do."""


class UserError(ValueError):
    """A mistake in the user's input. The command line prints its message in one line and exits with code 2."""
