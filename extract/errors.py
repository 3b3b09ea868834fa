"""The one kind of error a person can fix: what was given, what was expected, what to do."""


class UserError(ValueError):
    """A mistake in the user's input. The command line prints its message as one line and exits with 2."""
