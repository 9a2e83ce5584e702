# tests/api/test_reports.py
"""Pages: what stands in them, who writes them, and that a browser shows them."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import torch

import torchbolt
from torchbolt import plans, reports
from torchbolt.cli.models import small_config

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(16, 32), torch.nn.LayerNorm(32)

    def forward(self, x):
        x = self.linear(x).relu()
        torchbolt.graph_break("</script> & more")
        return self.norm(x).softmax(-1)


FORWARD = Net.forward.__code__.co_firstlineno


def facts_of(page) -> dict:
    text = pathlib.Path(page).read_text()
    return json.loads(re.search(r"^const facts = (.*);$", text, re.M)[1])


@pytest.fixture
def explained():
    torchbolt.reset()
    model, x = Net().eval(), torch.randn(4, 16)
    with torch.no_grad():
        seen = torchbolt.explain(model)(x)
        compiled = torchbolt.compile(model)
        for _ in range(3):
            compiled(x)
        return seen, reports.measured(lambda: compiled(x))


def test_a_page_holds_everything(explained, tmp_path):
    seen, measured = explained
    page = seen.save(tmp_path / "deep" / "report.html", title="a net", measured=measured)
    facts = facts_of(page)
    assert facts["title"] == "a net" and len(facts["regions"]) == 2
    first, second = facts["regions"]
    assert [node["op"] for node in first["nodes"] if node["op"] != "input"] == ["linear", "relu"]
    (step,) = [step for step in first["steps"] if not step["once"]]
    assert step["kind"] == "contraction" and step["work"] >= 2 * 4 * 16 * 32
    assert "kernel @" in first["sources"][step["kernel"]] and step["kernel"] in first["schedules"]
    assert f"test_reports.py:{FORWARD + 1}" in facts["lines"][step["line"]]
    assert second["sources"] and len(first["guards"]) > 10
    (end,) = facts["breaks"]
    assert end["line"] == FORWARD + 2 and end["around"][end["line"] - end["around_from"]].strip().startswith(
        "torchbolt.graph_break"
    )
    assert "http" not in re.sub(r"const facts = .*", "", pathlib.Path(page).read_text())
    assert pathlib.Path(page).read_text().count("</script>") == 1
    events = facts["measured"]["events"]
    assert [event[0] for event in events] == [0, 1] and all(duration > 0 for *_, duration in events)
    assert facts["measured"]["limits"]["bytes"] > 1e6


def test_a_region_with_gradients_has_both_halves(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    facts = facts_of(torchbolt.explain(model)(torch.randn(4, 16)).save(tmp_path / "report.html"))
    forward, backward = facts["regions"]
    assert (forward["name"], backward["name"]) == ("region 0, forward", "region 0, backward")
    assert {"linear", "gelu"} <= {node["op"] for node in forward["nodes"]}
    assert "matmul" in {node["op"] for node in backward["nodes"]}
    for half in (forward, backward):
        steps = [step for step in half["steps"] if not step["once"]]
        assert steps and half["buffers"] and all("cost" in step for step in steps)
        assert {step["kernel"] for step in steps} - {""} <= set(half["sources"])
    assert forward["guards"] and not backward["guards"] and "kernels" not in backward  # told once


def test_pieces_of_a_region():
    text = "# piece 1\n# forward\none\n# backward\ntwo\n# piece 2\nthree\n"
    parts = {"piece 1, forward": "one\n", "piece 1, backward": "two\n", "piece 2": "three\n"}
    assert plans.parts_of(text) == parts and plans.parts_of("graph\n# layers repeat: 2\n") == {
        "": "graph\n# layers repeat: 2\n"
    }
    assert plans.parts_of("") == {"": ""}


def test_what_is_written_back_is_one_event():
    row = [(0, "norm_0"), (2, "copy"), (3, "copy"), (4, "copy")]
    events = [(name, 0.0, 1.0) for name in ("norm_0", "copy", "norm_0", "copy", "copy")]
    assert reports._taken(row, events, 0) == [0, 2] and reports._taken(row, events, 2) == [0, 2, 3]
    assert reports._taken(row, events, 1) == []


def test_the_page_of_a_whole_step_has_its_times(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(STEP)
    monkeypatch.chdir(tmp_path)
    arguments = ["explain", "net.py", "--gradients", "--threads", "1", "--html", "report.html"]
    subprocess.run([sys.executable, "-m", "torchbolt", *arguments], check=True, capture_output=True)
    facts = facts_of(tmp_path / "report.html")
    assert {event[0] for event in facts["measured"]["events"]} == {0}
    assert any(
        "adamw" in facts["lines"][step["line"]] or step["kind"] == "copy" for step in facts["regions"][0]["steps"]
    )


STEP = """
import torch
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(net.parameters())

def fn(x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss

inputs = torch.ones(4, 8)
"""


def test_the_page_of_twelve_layers_is_small(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = small_config(transformers.BertConfig, num_hidden_layers=12)
    with torch.no_grad():
        seen = torchbolt.explain(transformers.BertModel(config).eval())(torch.randint(0, 100, (2, 8)))
    page = seen.save(tmp_path / "report.html")
    assert os.path.getsize(page) < 2_000_000
    assert len(facts_of(page)["regions"][0]["steps"]) > 12 * 4


def test_report_of_the_process(tmp_path):
    torchbolt.reset()
    compiled = torchbolt.compile(lambda x: x * 2 + 1, name="twice")
    with torch.no_grad():
        compiled(torch.ones(3)), compiled(torch.ones(4))
        facts = facts_of(torchbolt.report(tmp_path / "all.html"))
    ours = [region for region in facts["regions"] if region["name"].startswith("twice, region")]
    assert len(ours) == 2 and facts["recompiles"] and facts["measured"] is None
    symbolic = ours[1]["steps"][0]
    assert symbolic["bytes"] is None and symbolic["kind"] == "kernel"


TRACED = """
import sys, torch, torchbolt
def traced(x):
    return torchbolt.compile(lambda x: x.sin() + 1, options={"trace.enabled": True, "trace.debug_dir": sys.argv[1]})(x)
with torch.no_grad():
    traced(torch.ones(3))
    torchbolt.compile(lambda x: x.cos() + 1)(torch.ones(3))
"""


def test_a_trace_has_a_page(tmp_path):
    subprocess.run([sys.executable, "-c", TRACED, str(tmp_path)], check=True, capture_output=True)
    (page,) = tmp_path.glob("torchbolt_debug/run_*/report.html")
    (region,) = facts_of(page)["regions"]
    assert any(node["op"] == "sin" for node in region["nodes"])
    assert (page.parent / "000__lambda_" / "4_plan.txt").exists() or list(page.parent.glob("000_*/4_plan.txt"))


PLAN = """\
plan @region: 1 kernels (of 2), arena 64 bytes
  b0 = input 0: f32[s0, 4] "x" steps 0..0
  b1 = input 1: f32[4, 8] param
  b2 = fold: f32[32]
  b3 = temp @0: bf16[2, 8] cuda:0 steps 0..1
  b4 = output 0 (made by its step): f32[2, 3] steps 1..2
fold:
  pack for @linear_0 (b1) -> (b2)                          # net.py:3 in forward
run:
  0: cuda:0 kernel @scale_1 (b0) -> (b3)                   # net.py:4 in forward
  1: extern (b3) -> (b4) {call=0, name="aten::topk"}
  2: copy b4 -> b0
return b4
write b0
kernel @scale_1 (in %b0: f32, out %b1: f32) space [2 d0, 8 d1] {
  %0 = load b0[8*d0 + d1]
  %1 = mul %0, %0
  %2 = exp %1
  store b1[8*d0 + d1] = %2
}
"""


def test_the_parts_of_a_plan():
    plan = plans.parse(PLAN)
    assert [(b.id, b.bytes, b.first, b.last) for b in plan.buffers] == [
        ("b0", None, 0, 0), ("b1", 128, -1, -1), ("b2", 128, -1, -1), ("b3", 32, 0, 1), ("b4", 24, 1, 2)]  # fmt: skip
    seen = [(s.kind, s.name, s.inputs, s.outputs, s.bytes, s.work, s.once) for s in plan.steps]
    assert seen == [
        ("pack", "linear_0", ["b1"], ["b2"], 256, None, True),
        ("kernel", "scale_1", ["b0"], ["b3"], None, 32, False),
        ("extern", "aten::topk", ["b3"], ["b4"], 56, None, False),
        ("copy", "copy", ["b4"], ["b0"], None, None, False),
    ]
    assert list(plan.kernels) == ["scale_1"] and plan.steps[1].line == "net.py:4 in forward"
    assert plans.parse("").steps == [] and plans.nodes_of("") == []


@pytest.mark.skipif(BROWSER is None, reason="there is no browser here")
def test_a_browser_shows_it(explained, tmp_path):
    seen, measured = explained
    page = pathlib.Path(seen.save(tmp_path / "report.html", title="a net", measured=measured))
    # A number that is cut has lost its unit.
    script = """
        $('after').click();
        const cut = [...document.querySelectorAll('#kernels .num')].filter((cell) => cell.scrollWidth > cell.clientWidth);
        document.title += ', shown, cut: ' + cut.map((cell) => cell.textContent);
    """
    page.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    command.append("--window-size=1280,900")
    shown = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120).stdout
    assert "<title>a net - Torchbolt report, shown, cut: </title>" in shown
    assert "linear_relu" in shown.split("</script>")[0].split('id="kernel-list"')[1]
    assert shown.count('class="break pad"') == 1 and "&lt;/script&gt; &amp; more" in shown


def equal_layers(number):
    layers = [torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True) for _ in range(number)]
    return torch.nn.Sequential(*layers).train()  # whose own fused operator is for eval()


def test_equal_layers_are_drawn_once_and_counted(tmp_path):
    torchbolt.reset()
    with torch.no_grad():
        seen = torchbolt.explain(equal_layers(24))(torch.randn(2, 8, 64))
    (region,) = facts_of(seen.save(tmp_path / "report.html"))["regions"]
    assert region["repeated"] > 0 and len(region["nodes"]) < region["ops"]


@pytest.mark.skipif(BROWSER is None, reason="there is no browser here")
def test_the_page_of_a_transformer_opens_within_a_second(tmp_path):
    torchbolt.reset()
    with torch.no_grad():
        seen = torchbolt.explain(equal_layers(12))(torch.randn(2, 8, 64))
    page = pathlib.Path(seen.save(tmp_path / "report.html"))
    assert page.stat().st_size < 2e6
    script = "document.title = 'opened in ' + Math.round(performance.now());"
    page.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    shown = [subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120) for _ in range(3)]
    assert min(int(re.search(r"<title>opened in (\d+)", done.stdout)[1]) for done in shown) < 1000
