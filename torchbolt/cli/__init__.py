# torchbolt/cli/__init__.py
"""The command line: `torchbolt VERB ...`. main.py has the table of verbs; each verb is one file.

A verb's file has `arguments(parser)` and `main(args) -> int`, the exit code: 0, it did what it was asked; 1, it did and
the answer is no (results differ, something does not work); 2, it could not (the user's mistake, told in one line).
What a verb finds is one dict, printed as text or, with --json, as it is. Verbs decide nothing about compilation: they
ask compile(), explain(), stats() and the texts of the stages.
"""
