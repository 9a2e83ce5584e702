# torchbolt/cli/estimate_page.py
"""What `torchbolt estimate` found -> one page for a browser: expected beside eager (and what came true), and reasons.

Bars are drawn by the browser from widths in per cent; there is no script, and nothing is loaded from anywhere.
"""

from __future__ import annotations

import html
import pathlib

from torchbolt import _build
from torchbolt.cli import output

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #66708a; --line: #dde2ea; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e9f0; --soft: #94a0b8; --line: #333c4d; --paper: #171c26; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
       max-width: 56rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.soft, footer { color: var(--soft); } footer { margin-top: 2.5rem; font-size: .85rem; }
.row { display: grid; grid-template-columns: 9rem 1fr 15rem; gap: 1rem; align-items: center; padding: .3rem 0;
       border-bottom: 1px solid var(--line); }
.bar { height: .9rem; background: var(--line); border-radius: .2rem; overflow: hidden; }
.bar div { height: 100%; background: var(--colour); } .number { font-variant-numeric: tabular-nums; }
@media (max-width: 40rem) { .row { grid-template-columns: 1fr; gap: .1rem; } }
"""
_EAGER, _OURS, _TRUE = "#8b95a8", "#3f7de0", "#2f9e6e"


def _row(name: str, share: float, colour: str, said: str) -> str:
    width = min(max(share, 0.0), 1.0) * 100
    return (
        f'<div class="row"><div>{html.escape(name)}</div><div class="bar" style="--colour: {colour}">'
        f'<div style="width: {width:.1f}%"></div></div><div class="number">{html.escape(said)}</div></div>'
    )


def _times(facts) -> str:
    rows = [("eager", facts["eager_us"], _EAGER, ""), ("expected", facts["expected_us"], _OURS, facts["speed"])]
    if true := facts.get("came_true"):
        rows.append(("came true", true["us"], _TRUE, true["speed"]))
    most = max(us for _, us, _, _ in rows)
    shown = [
        _row(name, us / most, colour, output.duration(us / 1e3) + (f", {speed:.2f}x eager's speed" if speed else ""))
        for name, us, colour, speed in rows
    ]
    if true:
        shown.append(f"<p>The estimate of the speed is off by {true['off_by']:+.0%}.</p>")
    return "".join(shown)


def _reasons(facts) -> str:
    unfused = facts["bytes_unfused"]
    saved = unfused - facts["bytes"]
    rows = [
        ("in libraries", facts["library_share"], f"{facts['library_share']:.0%} of eager's time"),
        ("in launches", facts["launch_share"], f"{facts['launch_share']:.0%} of eager's time"),
        ("moved less", saved / max(unfused, 1), f"{output.size(saved)} of {output.size(unfused)}"),
        ("steps left", facts["steps"] / max(facts["operators"], 1), f"{facts['steps']} of {facts['operators']}"),
    ]
    return "".join(_row(name, share, _OURS, said) for name, share, said in rows)


def _ends(count: int) -> str:
    if not count:
        return "Nowhere: the whole call is one program."
    times = "Once" if count == 1 else f"{count} times"
    return f"{times} in a call. <code>torchbolt diagnose</code> ranks the places, with a hint each."


def page(facts: dict) -> str:
    eagerly = [why for why in facts["eager_regions"] if "backend" not in why]
    listed = "".join(f"<li>{html.escape(why)}</li>" for why in eagerly)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Estimate of {html.escape(facts["target"])}</title><style>{_STYLE}</style>
<h1>{html.escape(facts["target"])}</h1>
<div class="soft">What compiling would gain, from one eager call and the plan of what it recorded.</div>
<h2>One call</h2>{_times(facts)}
<h2>Why</h2>{_reasons(facts)}
<p class="soft">Libraries compute products, convolutions and attention, which compiling leaves to them. Launches are
what calling operators takes, and what fusion saves is neither written to memory nor read again.</p>
<h2>Where regions end</h2><p>{_ends(facts["breaks"])}</p>
{f"<h2>What runs eagerly</h2><ul>{listed}</ul>" if listed else ""}
<footer>torchbolt {html.escape(_build.version)}, torch {html.escape(_build.torch_version)}</footer></html>
"""


def write(file: str, facts: dict) -> str:
    """The page, whose path is given back."""
    path = pathlib.Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(facts))
    return str(path.resolve())
