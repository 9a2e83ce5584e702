# tests/interp/run_cpython_suite.py
"""CPython's own Lib/test under our interpreter -> a table of tests whose outcome differs from plain CPython's.

    python tests/interp/run_cpython_suite.py [--mode plain|observed|compiled] [module ...]

Each module runs in a process of its own, once with every test method called by CPython and once by our interpreter
(everything a method calls in Python then runs in our loop too, except what C code calls back). In mode `observed` it
records as it goes; in mode `compiled` each method is compiled and called four times, as CPython calls it four times:
what was recorded is then run again, with nothing but Python's effects in it. Outcomes are compared
test by test: a test that CPython fails as well (missing resources, ...) does not count against us. Exit status 1 if
fewer than 99% agree, or if a test differs that is not listed below with its reason.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

MODULES = [
    "test_grammar",
    "test_generators",
    "test_genexps",
    "test_coroutines",
    "test_asyncgen",
    "test_with",
    "test_exceptions",
    "test_exception_group",
    "test_except_star",
    "test_raise",
    "test_scope",
    "test_funcattrs",
    "test_extcall",
    "test_keywordonlyarg",
    "test_positional_only_arg",
    "test_unpack",
    "test_unpack_ex",
    "test_named_expressions",
    "test_patma",
    "test_fstring",
    "test_super",
    "test_descr",
    "test_property",
    "test_contextlib",
    "test_functools",
    "test_itertools",
    "test_dict",
    "test_list",
    "test_set",
    "test_iter",
    "test_class",
    "test_call",
    "test_compare",
    "test_richcmp",
    "test_binop",
    "test_augassign",
    "test_bool",
    "test_listcomps",
    "test_setcomps",
    "test_dictcomps",
    "test_enumerate",
    "test_decorators",
    "test_metaclass",
    "test_types",
    "test_opcodes",
    "test_yield_from",
    "test_traceback",
    "test_frame",
    "test_slice",
    "test_tuple",
    "test_string",
    "test_userdict",
    "test_userlist",
    "test_collections",
    "test_dataclasses",
    "test_enum",
    "test_global",
    "test_dynamic",
    "test_index",
    "test_int",
    "test_float",
    "test_complex",
    "test_range",
    "test_sort",
    "test_weakref",
    "test_copy",
    "test_operator",
    "test_builtin",
    "test_deque",
    "test_ordered_dict",
    "test_random",
    "test_json",
    "test_typing",
    "test_abc",
    "test_context",
    "test_contextlib_async",
    "test_heapq",
    "test_bisect",
    "test_genericalias",
    "test_isinstance",
    "test_unicode",
    "test_asyncio.test_locks",
    "test_asyncio.test_pep492",
    "test_asyncio.test_queues",
    "test_asyncio.test_taskgroups",
    "test_asyncio.test_timeouts",
]

# Test id -> why its outcome differs, in any mode.
EXPECTED = {
    "test.test_generators.GeneratorStackTraceTest.test_throw_with_yield_from": (
        "throw() into a generator that C code consumes reaches the inner one without the outer frame on the stack"
    ),
    "test.test_call.TestPEP590.test_vectorcall_override": "f(*args) gives C's tp_call a copy of the tuple",
    "typing._collect_parameters": "doctest does not find it where torch was imported before",
}
_HELD = "programs of the call hold a class or function that the call made"
_COUNTS = "counts references, of which a recording holds some"
# What differs where the tests are compiled.
EXPECTED_COMPILED = {
    "test.test_coroutines.CoroutineTest.test_for_2": _COUNTS,
    "test.test_coroutines.OriginTrackingTest.test_unawaited_warning_when_module_broken": (
        "a text with the address of a coroutine that is made again"
    ),
    "test.test_descr.ClassPropertiesAndMethods.test_remove_subclass": _HELD,
    "test.test_enumerate.TestReversed.test_bug1229429": _COUNTS,
    "test.test_enumerate.TestReversed.test_len": "reversed() of a sequence in Python is a list's iterator",
    "test.test_functools.TestLRUC.test_lru_cache_weakrefable": _HELD,
    "test.test_isinstance.TestIsInstanceIsSubclass.test_isinstance_recursion_limit": "nested tuples need no stack",
    "test.test_isinstance.TestIsInstanceIsSubclass.test_subclass_recursion_limit": "nested tuples need no stack",
    "test.test_traceback.TestStack.test_walk_stack": "list() has a frame of Python where it goes through a generator",
    "test.test_traceback.TestTracebackException.test_from_exception": (
        "the frames of a traceback that is made again have no locals"
    ),
    "test.test_typing.SpecialAttrsTests.test_special_attrs": "what typing makes and keeps is made again",
    "test.test_weakref.MappingTestCase.test_weak_keyed_cascading_deletes": _HELD,
    "test.test_weakref.ReferencesTestCase.test_callback_in_cycle_resurrection": _HELD,
    "test.test_weakref.ReferencesTestCase.test_cfunction": _HELD,
    "test.test_weakref.WeakMethodTestCase.test_callback_when_method_dead": _HELD,
    "test.test_weakref.WeakMethodTestCase.test_method_dead": _HELD,
}
for _kind in ("CPythonOrderedDict", "CPythonOrderedDictSubclass"):
    EXPECTED_COMPILED[f"test.test_ordered_dict.{_kind}Tests.test_reference_loop"] = _HELD
for _kind in ("PurePythonOrderedDict", "PurePythonOrderedDictSubclass"):
    EXPECTED_COMPILED[f"test.test_ordered_dict.{_kind}Tests.test_reference_loop"] = _HELD
    EXPECTED_COMPILED[f"test.test_ordered_dict.{_kind}Tests.test_highly_nested_subclass"] = (
        "a recording holds what it wrote to until the call is over"
    )

AGREEMENT = 0.99


REPEATS = 4


def caller(mode):
    """TestCase._callTestMethod of a mode."""
    if mode == "cpython":
        return lambda self, method: method() and None
    if mode in ("plain", "observed"):
        interp = _module()
        run = interp._interp_run if mode == "plain" else interp._interp_run_observed
        return lambda self, method: run(method) and None

    def repeat(self, method):
        if mode == "compiled":
            import torchbolt

            torchbolt.reset()
            method = torchbolt.compile(method)
        for again in range(REPEATS):
            if again:
                self.tearDown()
                self.doCleanups()
                self.setUp()
            method()

    return repeat


def child(module, mode, output):
    """Runs one module's tests and writes {test id: outcome}."""
    import unittest

    unittest.TestCase._callTestMethod = caller(mode)

    outcomes = {}

    class Result(unittest.TestResult):
        def addSuccess(self, test):
            outcomes.setdefault(test.id(), "ok")

        def addError(self, test, error):
            outcomes[test.id()] = f"error: {error[0].__name__}: {str(error[1])[:300]}"

        def addFailure(self, test, error):
            outcomes[test.id()] = f"failure: {str(error[1])[:300]}"

        def addSkip(self, test, reason):
            outcomes[test.id()] = "skipped"

        def addSubTest(self, test, subtest, error):
            if error:
                outcomes[test.id()] = f"subtest {error[0].__name__}: {str(error[1])[:300]}"

        def startTest(self, test):
            super().startTest(test)
            with open(output + ".last", "w") as file:
                file.write(test.id())

    suite = unittest.defaultTestLoader.loadTestsFromName("test." + module)
    suite.run(Result())
    with open(output, "w") as file:
        json.dump(outcomes, file)


def _module():
    folder = os.environ.get("BOLT_INTERP_DIR")
    if folder:
        sys.path.insert(0, folder)
        import _interp

        return _interp
    import torchbolt._C

    return torchbolt._C


def run_child(module, mode):
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "outcomes.json")
        command = [sys.executable, os.path.abspath(__file__), "--child", module, mode, output]
        # The child stands in another folder; from there build/python would be nowhere, and an installed torchbolt tested.
        path = [os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        try:
            process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
            status = process.returncode
        except subprocess.TimeoutExpired:
            status = "timeout"
        if os.path.exists(output):
            with open(output) as file:
                return json.load(file)
        last = open(output + ".last").read() if os.path.exists(output + ".last") else "before the first test"
        return {"*": f"process ended with {status} in {last}"}


def compare(module, mode):
    expected = run_child(module, "repeated" if mode == "compiled" else "cpython")
    got = run_child(module, mode)
    if "*" in got:
        got = dict.fromkeys(expected, got["*"])
    differing = {}
    for test, outcome in expected.items():
        ours = got.get(test, "not run")
        if ours.split(":")[0] != outcome.split(":")[0]:
            differing[test] = (outcome, ours)
    return len(expected), differing


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="plain", choices=["plain", "observed", "compiled"])
    parser.add_argument("modules", nargs="*", default=MODULES)
    options = parser.parse_args()
    expected = EXPECTED | (EXPECTED_COMPILED if options.mode == "compiled" else {})
    total = differ = unlisted = 0
    for module in options.modules:
        count, differing = compare(module, options.mode)
        total += count
        differ += len(differing)
        print(f"{module:28} {count - len(differing):5} of {count:5} agree", flush=True)
        for test, (theirs, ours) in differing.items():
            reason = expected.get(test)
            unlisted += reason is None
            print(
                f"    {test}\n        CPython: {theirs}\n        ours:    {ours}"
                + (f"\n        known: {reason}" if reason else "")
            )
    agree = (total - differ) / max(total, 1)
    print(f"{total - differ} of {total} tests agree ({agree:.2%}); {unlisted} differ without a listed reason")
    # One listed difference in a small module is more than 1 %: the share is judged over many.
    return int(unlisted > 0 or (total > 1000 and agree < AGREEMENT))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:5])
    else:
        sys.exit(main())
