# bench/forks.py
"""Functions called in processes of their own that begin where this one is, their answers read as JSON.

A fresh process imports torch and transformers for ten seconds, most of what a measurement of one model takes; a fork
has them already. This process must not have touched CUDA, nor have run anything on several threads.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback


class Fork:
    """function(*arguments) under more `environment`, begun."""

    def __init__(self, function, *arguments, **environment):
        self.answer = tempfile.TemporaryFile("w+")  # noqa: SIM115  read when the process has ended
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if self.process == 0:
            self._work(function, arguments, environment)

    def _work(self, function, arguments, environment):
        os.environ.update(environment)
        try:
            answer = function(*arguments)
        except BaseException:  # what ends a fork is an answer, too: its parent goes on with the next
            answer = {"failed": traceback.format_exc().strip().splitlines()[-1:]}
        json.dump(answer, self.answer)
        self.answer.flush()
        os._exit(0)  # nothing of the parent's is cleaned up here

    def ended(self) -> bool:
        if self.process and os.waitpid(self.process, os.WNOHANG) != (0, 0):
            self.process = 0
        return self.process == 0

    def result(self, timeout: float = 600.0) -> dict:
        """Its answer; {"failed": why} where it raised, died or takes longer."""
        end = time.monotonic() + timeout
        while not self.ended():
            if time.monotonic() > end:
                os.kill(self.process, 9)
                os.waitpid(self.process, 0)
                return {"failed": [f"took longer than {timeout:.0f} s"]}
            time.sleep(0.01)
        self.answer.seek(0)
        text = self.answer.read()
        return json.loads(text) if text else {"failed": ["died"]}


def abreast(begin, cases, most: int) -> dict:
    """case -> the answer of begin(case), a Fork, `most` of them at a time."""
    waiting, running, answers = list(cases), {}, {}
    while waiting or running:
        while waiting and len(running) < most:
            case = waiting.pop(0)
            running[case] = begin(case)
        for case in [case for case, fork in running.items() if fork.ended()]:
            answers[case] = running.pop(case).result()
        time.sleep(0.01)
    return answers
