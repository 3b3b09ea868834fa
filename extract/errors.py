"""The error for a mistake of the user: what was given, what was expected, what to do."""


class UserError(ValueError):
    """A mistake in the user's input. The command line prints its message as one line and exits with 2."""
