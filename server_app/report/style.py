"""The style sheet of a report: one column below 700 pixels, light and dark scheme, and print.

Read next: `server_app.report.template`, which uses the classes.
"""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f4f6f8; --card: #ffffff; --ink: #1b2630; --soft: #55636f; --line: #dbe2e8; --accent: #0b5c85;
  --good: #17693f; --good-bg: #e3f4ea; --bad: #a3241b; --bad-bg: #fdebe8; --warn: #7d4e00; --warn-bg: #fdf3dc;
  --alarm: #b34700; --plot-ink: #26323d; --plot-grid: #d5dce2; --plot-faint: #8b98a5;
  --plot-blue: #0072b2; --plot-green: #009e73; --plot-red: #d55e00; --plot-amber: #e69f00;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #10161c; --card: #182029; --ink: #e7edf2; --soft: #a3b1bd; --line: #2c3843; --accent: #6cc0ea;
    --good: #7fd8a4; --good-bg: #14301f; --bad: #ff9d92; --bad-bg: #3b1814; --warn: #f3c66a; --warn-bg: #33260c;
    --alarm: #f5935a; --plot-ink: #d3dde5; --plot-grid: #36434f; --plot-faint: #7f8d99;
    --plot-blue: #56b4e9; --plot-green: #2cc298; --plot-red: #f0803c; --plot-amber: #f0b429;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1, h2, h3, p, figure, dl, dd { margin: 0; }
h1 { font-size: clamp(1.6rem, 4.5vw, 2.3rem); line-height: 1.15; letter-spacing: -0.015em; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.9rem; letter-spacing: -0.005em; }
h3 { font-size: 1rem; }
.brand { color: var(--accent); font-weight: 650; font-size: 0.85rem; letter-spacing: 0.04em; }
.lead, .note { color: var(--soft); }
.note { font-size: 0.85rem; overflow-wrap: anywhere; }
.section-note { margin: -0.5rem 0 0.9rem; }
.section-note.after { margin: 0.9rem 0; }
.banner {
  display: flex; gap: 0.9rem; align-items: flex-start; margin-top: 1.25rem; padding: 0.85rem 1.1rem;
  border-radius: 10px; border: 1px solid currentColor; print-color-adjust: exact; -webkit-print-color-adjust: exact;
}
.banner .symbol { flex: 0 0 1.2rem; text-align: center; font-size: 1.25rem; line-height: 1.3; }
.name { display: inline-block; max-width: 100%; }
.banner strong { display: block; }
.banner strong::first-letter { text-transform: uppercase; }
.banner p { color: var(--ink); overflow-wrap: anywhere; }
.completed { background: var(--good-bg); color: var(--good); }
.failed { background: var(--bad-bg); color: var(--bad); }
.stopped, .silence { background: var(--warn-bg); color: var(--warn); }
.silence { margin-top: 0.6rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1rem 1.15rem; }
.grid { display: grid; gap: 0.9rem; }
.three { grid-template-columns: repeat(3, minmax(0, 1fr)); }
.four { grid-template-columns: repeat(4, minmax(0, 1fr)); }
.two { grid-template-columns: repeat(2, minmax(0, 1fr)); align-items: start; }
.grid + .grid, .scroll + .grid { margin-top: 0.9rem; }
.figure dt { color: var(--soft); font-size: 0.85rem; }
.figure .value { font-size: 1.35rem; font-weight: 620; line-height: 1.3; font-variant-numeric: tabular-nums; }
.headline .value { font-size: 2.3rem; letter-spacing: -0.02em; line-height: 1.2; }
.figure .subject { font-weight: 620; overflow-wrap: anywhere; }
.alarming .value, .alarming .subject { color: var(--alarm); }
td.alarming, td.alarming .detail { color: var(--alarm); }
.missing { color: var(--soft); font-weight: 400; }
[title].missing, [title].exact { cursor: help; }
.detail { color: var(--soft); font-size: 0.8rem; font-weight: 400; white-space: nowrap; }
.plot svg { display: block; width: 100%; max-width: 470px; height: auto; margin-top: 0.5rem; }
.plot svg * { stroke-linejoin: round; stroke-linecap: butt; }
.plot svg text { font-family: inherit !important; }
.empty { color: var(--soft); padding: 2.2rem 0; text-align: center; }
.scroll { overflow: auto; padding: 0; }
.scroll.long { max-height: 36rem; }
.scroll:focus-visible, summary:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 0.92rem; }
th, td { padding: 0.5rem 0.75rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
tbody tr:last-child > * { border-bottom: 0; }
thead th {
  position: sticky; top: 0; z-index: 1; background: var(--card); color: var(--soft); font-size: 0.8rem;
  font-weight: 600; vertical-align: bottom; box-shadow: inset 0 -1px 0 var(--line);
}
.number { text-align: right; font-variant-numeric: tabular-nums; }
.number > span, .value > span { white-space: nowrap; }
.number .detail { display: block; }
tbody th { font-weight: 600; min-width: 8.5rem; max-width: 15rem; overflow-wrap: anywhere; background: var(--card); }
.hospitals tbody th, .influence tbody th, .masking tbody th,
.hospitals thead th:first-child, .influence thead th:first-child, .masking thead th:first-child {
  position: sticky; left: 0; z-index: 1;
}
.hospitals thead th:first-child, .influence thead th:first-child, .masking thead th:first-child { z-index: 2; }
tr.worst th { box-shadow: inset 4px 0 0 var(--plot-red); }
.tag {
  display: inline-block; margin-right: 0.2rem; padding: 0 0.45rem; border-radius: 99px; border: 1px solid currentColor;
  font-size: 0.72rem; font-weight: 650; line-height: 1.45; white-space: nowrap;
}
.tag.is-worst { color: var(--bad); background: var(--bad-bg); }
.tag.is-silent { color: var(--warn); background: var(--warn-bg); }
.reasons > span { display: block; color: var(--soft); font-size: 0.8rem; }
.meter { display: block; width: 4.5rem; height: 4px; margin: 0.3rem 0 0 auto; background: var(--line); }
.meter > span { display: block; height: 100%; border-radius: 2px; background: var(--plot-blue); }
tr.worst .meter > span { background: var(--plot-red); }
.promises { margin: 0; padding-left: 1.2rem; max-width: 75ch; }
.promises li + li, .promises + .note, h3 + .promises { margin-top: 0.5rem; }
.promises li::marker { color: var(--accent); }
details { margin-top: 2.5rem; }
details h2 { display: inline; }
summary { cursor: pointer; border-radius: 6px; }
details .scroll { margin-top: 0.9rem; }
code { font: 0.85rem/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--soft); font-size: 0.85rem; }
@media (max-width: 1000px) {
  .four, .plots { grid-template-columns: repeat(2, minmax(0, 1fr)); }
}
@media (max-width: 700px) {
  main { padding: 1.25rem 0.9rem 3rem; }
  .two, .three, .four, .plots { grid-template-columns: minmax(0, 1fr); }
  .four { gap: 0.6rem; }
  .four .card { display: grid; grid-template-columns: 1fr auto; gap: 0 1rem; padding: 0.6rem 0.85rem; }
  .four dt { align-self: center; }
  .four .value { font-size: 1.15rem; text-align: right; }
  .four .note, .costs .note { grid-column: 1 / -1; }
  .costs tr { display: grid; grid-template-columns: 1fr auto; border-bottom: 1px solid var(--line); }
  .costs tr:last-child { border-bottom: 0; }
  .costs tr > * { border: 0; }
  .costs .note { padding-top: 0; }
}
@media print {
  body { font-size: 11pt; background: none; }
  main { max-width: none; padding: 0; }
  .card, tr, .banner { break-inside: avoid; }
  .scroll.card { break-inside: auto; }
  .scroll, .scroll.long { overflow: visible; max-height: none; }
  h2 { break-after: avoid; }
  .three { grid-template-columns: repeat(3, minmax(0, 1fr)); }
  .four { grid-template-columns: repeat(4, minmax(0, 1fr)); }
  .plots { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  thead th, .hospitals tbody th, .influence tbody th, .masking tbody th { position: static; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""
