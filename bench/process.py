# bench/process.py
"""Starts the measuring processes and talks to them, line by line."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Failed(Exception):
    """A measuring process could not do what it was asked; the message is its reason."""


def environment(threads: int, **more: str) -> dict[str, str]:
    """This process's environment with `threads` threads for every library that starts its own."""
    counts = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **counts, **quiet, **more}


class Process:
    """A script of this folder whose stdout is JSON lines. Its stderr goes to `log`."""

    def __init__(self, script: str, args: list[str], env: dict[str, str], log: pathlib.Path):
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / script), *args],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=env, text=True)  # fmt: skip

    def read(self) -> dict:
        """The next reply; Failed if the process says so or is gone."""
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"the process ended ({self.process.wait()}); see {self.log}")
        reply = json.loads(line)
        if "failed" in reply:
            raise Failed(reply["failed"])
        return reply

    def ask(self, command: str) -> dict:
        """Sends one command and waits for its reply."""
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"the process ended ({self.process.wait()}); see {self.log}") from None
        return self.read()

    def close(self) -> None:
        """Ends the process and waits for it."""
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
