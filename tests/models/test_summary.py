# tests/models/test_summary.py
"""The benchmark's report: figures come from the right lines; what was not measured is not made up."""

import json

import pytest

from bench import demo, report, summary

HEADER = dict(cpu="a machine", cores=2, isa="AVX512", torch="2.13.0", python="3.11", size="bench")
CASE = ("bert", "float32", 1)
KEY = dict(zip(("model", "dtype", "threads"), CASE, strict=True))


def start(backend, phase, first_ms):
    return dict(what="start", backend=backend, phase=phase, eager_ms=20.0, first_ms=first_ms, peak_rss_mb=500.0, **KEY)


LINES = [
    start("eager", "cold", 20.0),
    start("torchbolt", "cold", 220.0),
    start("torchbolt", "second", 70.0),
    start("torch.compile", "cold", 20020.0),
    dict(what="steady", backend="torchbolt", ms=10.0, speed=2.0, **KEY),
    dict(what="steady", backend="torch.compile", ms=16.0, speed=1.25, **KEY),
    dict(what="failed", backend="openvino", phase="cold", reason="no such operator", **KEY),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, [HEADER, *LINES])))
    return tmp_path


def test_bars_come_from_the_measurements(folder):
    rows = {what: value for what, value, _, _ in summary.bars(summary.Measured(folder / "results.jsonl"))}
    assert rows["first call over eager, slowest, s"] == pytest.approx(0.2)
    assert rows["first call, times less than torch.compile's"] == pytest.approx(100)
    assert rows["second process over eager, slowest, s"] == pytest.approx(0.05)
    assert rows["speed over torch.compile's, mean"] == pytest.approx(1.6)
    assert rows["speed over eager, bert, 1 thread"] == 2.0
    assert rows["largest error over eager's"] is None


def test_every_form_is_written(folder):
    summary.write(folder / "results.jsonl", folder)
    text = (folder / "report.md").read_text()
    assert "| bert | openvino | cold | no such operator |" in text
    assert "| bert | - | 2.00x | 1.25x | - | - |" in text
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 2 and "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert json.loads((folder / "summary.json").read_text())["machine"] == HEADER


def test_a_later_line_replaces_an_earlier_one(folder):
    with (folder / "results.jsonl").open("a") as out:
        out.write("\n" + json.dumps(dict(LINES[4], speed=3.0)))
    assert summary.Measured(folder / "results.jsonl").speed(CASE, "torchbolt") == 3.0


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.1234, "0.123"), (1.2, "1.20"), (12345.0, "12,345"), (1.3e-6, "1.30e-06")]
)
def test_figures_have_three_digits(value, text):
    assert report.short(value) == text


def test_the_demos_table_does_not_contradict_itself(tmp_path):
    """A machine that others slow in some rounds: what each row says follows from the times in it."""
    times = dict(eager=25.3, torchbolt=28.0)
    steady = [dict(what="steady", backend=b, ms=t, speed=1.55, **KEY) for b, t in times.items()]
    error = [dict(what="error", backend=b, error=1e-6, **KEY) for b in times]
    facts = dict(what="facts", backend="torchbolt", kernels=4, kernels_before_fusion=9, **KEY)
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, [HEADER, *LINES[:3], *steady, *error, facts])))
    m = summary.Measured(tmp_path / "results.jsonl")
    rows = demo.rows_of(m, CASE)
    assert rows[0] == ("a call, steady state", "25.3 ms", "28.0 ms", "0.90x eager's speed")
    assert [row[1] for row in rows[:3]] == ["25.3 ms"] * 3
    assert [row[3].split(" s ")[0] for row in rows[1:3]] == ["0.19", "0.04"]  # 220 and 70 ms, less 25.3
    cards, steady_chart, start_chart, _ = demo.sections(m, {"BERT": rows})
    assert cards.cards[0][0] == "0.90x" and cards.cards[1][0] == "0.19 s"
    assert steady_chart.series["eager"] == start_chart.series["eager"] == [25.3]
