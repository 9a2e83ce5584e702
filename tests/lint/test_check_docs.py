# tests/lint/test_check_docs.py
"""scripts/check_docs.py: which names in documents and comments are of nothing that is there."""

from lint_scripts import load

check = load("check_docs")
FILES = ["src/loops/plan.h", "src/loops/plan.cpp"]


def test_files_that_are_gone_are_found():
    assert check.missing(["loops/plan.h", "plan.cpp", "ATen/core/Tensor.h"], FILES) == []
    assert check.missing(["lower/plan.h", "lan.cpp"], FILES) == ["lan.cpp", "lower/plan.h"]


def test_names_of_the_code_are_looked_for_and_other_code_is_not():
    words = {"Execution", "has_written", "PlanOptions"}
    there = "`Execution::has_written`, `has_written()`, `PlanOptions`, `x.mul_(2)`, `a + b_c`, `softmax`, `Graph`"
    assert check.unknown(there, words) == []
    assert check.unknown("`Execution::run_all`, `was_written()`, `PlanChoices`", words) == [
        "Execution::run_all",
        "was_written",
        "PlanChoices",
    ]


def test_comments_name_files_and_code_does_not():
    text = '#include "gone.h"\nint a;  // see plan.h, self.h[1:]\n/// Of loops/plan.cpp.\n'
    assert check.IN_COMMENT.findall(check.comments(text)) == ["plan.h", "loops/plan.cpp"]
