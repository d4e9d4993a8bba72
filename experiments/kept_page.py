"""The page of kept_text.py: one HTML file that needs nothing else."""

import html
import json
from bisect import bisect_left

BOUNDS = (0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1)        # shares, of the classes k1 to k8
CONTROLS = {c: 0x2400 + c for c in range(32) if c not in (9, 10)}
CONTROLS |= {127: 0x2421} | {c: 0xFFFD for c in range(128, 160)}

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1b1b; --quiet: #6b6b6b; --line: #ccc;
  --k1: #fff3c4; --k2: #ffe38f; --k3: #ffcc5c; --k4: #fdae45; --k5: #f98d3c; --k6: #ef6a3a;
  --k7: #c5332a; --k8: #8f1424; --low: #1b1b1b; --middle: #1b1b1b; --high: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181d; --ink: #e8e6e0; --quiet: #92959c; --line: #444;
    --k1: #3a2f14; --k2: #53400f; --k3: #6d520b; --k4: #856308; --k5: #b08408; --k6: #d0a116;
    --k7: #eac23a; --k8: #ffe873; --low: #fff; --middle: #101010; --high: #101010; } }
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 1.5em auto; max-width: 62em; padding: 0 1em; }
h1 { font-size: 1.3em; } h2 { font-size: 1.1em; margin-bottom: 0.2em; }
.made { color: var(--quiet); font-size: 0.85em; margin: 0.2em 0; overflow-wrap: anywhere; }
.tabs button { font: inherit; color: inherit; background: none; border: 1px solid var(--line);
  border-radius: 4px; padding: 0.2em 0.8em; margin-right: 0.4em; cursor: pointer; }
.tabs button[aria-selected=true] { border-color: var(--ink); font-weight: bold; }
.legend { border-spacing: 0.7em 0.1em; margin-left: -0.7em; font-size: 0.9em; }
.legend td, .legend th { text-align: right; font-variant-numeric: tabular-nums; }
.legend th { font-weight: normal; }
.legend span { padding: 0 0.6em; }
.text { border-top: 1px solid var(--line); padding-top: 0.8em; white-space: pre-wrap;
  overflow-wrap: anywhere; font: 14px/1.85 ui-monospace, monospace; tab-size: 8; }
.k0 { color: var(--quiet); }
.k1 { background: var(--k1); color: var(--low); } .k2 { background: var(--k2); color: var(--low); }
.k3 { background: var(--k3); color: var(--low); } .k4 { background: var(--k4); color: var(--low); }
.k5 { background: var(--k5); color: var(--middle); }
.k6 { background: var(--k6); color: var(--middle); }
.k7 { background: var(--k7); color: var(--high); }
.k8 { background: var(--k8); color: var(--high); }
.text .n::before { content: "\\21b5"; opacity: 0.6; }
.text span { padding: 1px 0; }
.text span:hover { outline: 1px solid var(--ink); }
#tip { position: fixed; display: none; background: var(--page); border: 1px solid var(--ink);
  border-radius: 4px; padding: 0.4em 0.7em; font: 12px/1.4 ui-monospace, monospace;
  white-space: pre; pointer-events: none; max-width: 95vw; overflow: hidden; }
"""

SCRIPT = """
const data = JSON.parse(document.getElementById('data').textContent);
const sections = [...document.querySelectorAll('section')], tip = document.getElementById('tip');
const buttons = [...document.querySelectorAll('.tabs button')];
function select(chosen) {
  sections.forEach((section, i) => { section.hidden = i !== chosen; });
  buttons.forEach((button, i) => button.setAttribute('aria-selected', i === chosen));
}
buttons.forEach((button, i) => button.addEventListener('click', () => select(i)));
document.querySelector('.tabs').hidden = false;
select(0);
function lines(d, position) {
  const layers = d.rows[d.row[position]], most = d.heads * layers.length;
  const all = layers.reduce((a, b) => a + b, 0), share = (100 * all / most).toFixed(1);
  let text = `position ${position}: kept by ${all} of ${most} KV heads (${share} %)`;
  text += `\\nof ${d.heads} in layer`;
  for (let from = 0; from < layers.length; from += 10)
    text += '\\n' + String(from).padStart(3) + ': ' +
      layers.slice(from, from + 10).map(n => String(n).padStart(3)).join('');
  return text;
}
function show(event) {
  const span = event.target.closest('[data-i]');
  tip.style.display = span ? 'block' : 'none';
  if (!span) return;
  const first = +span.dataset.i, n = +(span.dataset.n || 1);
  const d = data[+span.closest('section').dataset.s];
  const parts = [JSON.stringify(span.textContent) + (n > 1 ? `, ${n} tokens` : '')];
  for (let i = first; i < first + n; i++) parts.push(lines(d, i));
  tip.textContent = parts.join('\\n');
  const at = span.getClientRects()[0], box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(at.left, innerWidth - box.width - 8)) + 'px';
  const above = Math.max(4, at.top - box.height - 4);
  tip.style.top = (at.bottom + box.height + 8 < innerHeight ? at.bottom + 4 : above) + 'px';
}
document.addEventListener('mouseover', show);
document.addEventListener('click', show);
"""


def class_of(count, most):
    """0 to 8: none, or the first bound that a count of KV heads does not exceed."""
    return 0 if count == 0 else 1 + bisect_left(BOUNDS, count / most)


def spans(view):
    for first, n, text in view.groups:
        total = sum(view.counts[first:first + n])
        mean = max(int(total > 0), (total + n // 2) // n)
        more = f' data-n="{n}"' if n > 1 else ""
        line = " n" if "\n" in text else ""
        shown = html.escape(text.translate(CONTROLS), quote=False)
        kind = class_of(mean, view.most)
        yield f'<span class="k{kind}{line}" data-i="{first}"{more}>{shown}</span>'


def legend(view):
    """A line for each class that a count can be in: counts, shares, how many tokens."""
    tokens = [0] * (len(BOUNDS) + 1)
    for count in view.counts:
        tokens[class_of(count, view.most)] += 1
    ranges = {}
    for count in range(view.most + 1):
        low, _ = ranges.get(kind := class_of(count, view.most), (count, count))
        ranges[kind] = low, count
    yield ('<table class="legend"><tr><th></th><th>KV heads that keep it</th><th>%</th>'
           "<th>tokens</th></tr>")
    for kind, (low, high) in ranges.items():
        counts = f"{low}\u2013{high}" if low < high else f"{low}"
        ends = [f"{100 * end / view.most:.3g}" for end in (low, high)]
        shares = "\u2013".join(dict.fromkeys(ends))
        yield (f'<tr><td><span class="k{kind}">text</span></td><td>{counts}</td><td>{shares}</td>'
               f"<td>{tokens[kind]}</td></tr>")
    yield "</table>"


def section(index, view):
    yield (f'<section data-s="{index}" id="s{index}"><h2>{html.escape(view.name)}: '
           f"{100 * view.share:.1f} % of the rows kept</h2>")
    yield (f'<p class="made">{len(view.counts)} tokens, {view.most // view.heads} layers of '
           f"{view.heads} KV heads. {html.escape(view.made)}</p>")
    yield from legend(view)
    yield f'<div class="text">{"".join(spans(view))}</div></section>'


def data_of(view):
    """Counts by layer of each token; there are fewer different ones than tokens."""
    rows, places = {}, []
    for row in zip(*view.layers):
        places.append(rows.setdefault(row, len(rows)))
    return {"heads": view.heads, "rows": list(rows), "row": places}


def page(views):
    """The lines of the file."""
    names = ", ".join(view.name for view in views)
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Kept: {html.escape(names)}</title><style>{STYLE}</style></head><body>"
    yield "<h1>Which tokens are kept, and by how many KV heads of all layers</h1>"
    tabs = "".join(f'<button type="button" role="tab" aria-controls="s{i}">'
                   f"{html.escape(view.name)}</button>" for i, view in enumerate(views))
    yield f'<div class="tabs" role="tablist" hidden>{tabs}</div>'
    for index, view in enumerate(views):
        yield from section(index, view)
    data = json.dumps([data_of(view) for view in views], separators=(",", ":"))
    yield f'<div id="tip"></div><script type="application/json" id="data">{data}</script>'
    yield f"<script>{SCRIPT}</script></body></html>"
