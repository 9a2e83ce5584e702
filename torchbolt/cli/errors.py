# torchbolt/cli/errors.py
"""What a command line cannot do because of what it was given: told in one line, without a traceback."""


class UsageError(Exception):
    """The message says what is wrong and what to give instead; the exit code is 2."""
