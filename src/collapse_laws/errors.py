"""The one exception whose text is written for the user: a sentence saying what, where, what is allowed."""


class UserError(Exception):
    """Bad input. The command line prints its text as one sentence and exits with 2."""
