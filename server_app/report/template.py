"""The page a report is, as a template for Jinja2.

It is a Python string, because the bundle that Flower builds of an app carries no other template files. Values come
from `server_app.report.view`; everything is escaped but the style sheet and the drawings of `server_app.report.svg`.
"""

from __future__ import annotations

from server_app.report.asynchrony_template import ASYNCHRONY
from server_app.report.masking_template import MASKING

TEMPLATE = (
    """
{% macro show(value) %}
{% set kind = "missing" if value.missing else ("exact" if value.title else "") %}
<span{% if kind %} class="{{ kind }}"{% endif %}{% if value.title %} title="{{ value.title }}"{% endif %}>
{{- value.text }}</span>
{%- if value.detail %} <span class="detail">{{ value.detail }}</span>{% endif %}
{% endmacro %}
{% macro figures(items) %}
{% for item in items %}
<div class="card figure{{ ' alarming' if item.alarming }}">
<dt>{{ item.label }}</dt>
<dd class="value">{{ show(item.value) }}</dd>
{% if item.subject %}
<dd class="subject"><bdi>{{ item.subject }}</bdi></dd>
{% endif %}
{% if item.note or item.value.missing %}
<dd class="note">{{ item.value.title if item.value.missing else item.note }}</dd>
{% endif %}
</div>
{% endfor %}
{% endmacro %}
{% macro drawing(plot) %}
<figure class="card plot">
<h3>{{ plot.title }}</h3>
<figcaption class="note">{{ plot.caption }}</figcaption>
{% if plot.svg %}
<div role="img" aria-label="{{ plot.title }}. {{ plot.caption }}">
{{ plot.svg | safe }}
</div>
{% else %}
<p class="empty">{{ plot.empty }}</p>
{% endif %}
</figure>
{% endmacro %}
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="robots" content="noindex">
<title>{{ view.run }} &ndash; {{ view.banner.status }} &ndash; Aegis FL</title>
<style>{{ style | safe }}</style>
</head>
<body>
<main>
<header>
<p class="brand">Aegis FL &middot; run report</p>
<h1><bdi>{{ view.run }}</bdi></h1>
<p class="lead">{{ view.subtitle }}</p>
<div class="banner {{ view.banner.status }}" role="status">
<span class="symbol" aria-hidden="true">{{ view.banner.symbol }}</span>
<div><strong>{{ view.banner.status }}</strong><p>{{ view.banner.sentence }}</p></div>
</div>
{% if view.silent %}
<div class="banner silence">
<span class="symbol" aria-hidden="true">!</span>
<div><strong>Silent hospitals</strong>
<p>No update of these went into the model:
{% for hospital in view.silent %}
<span class="name"><bdi>{{ hospital }}</bdi>{{ "" if loop.last else "," }}</span>
{% endfor %}
</p></div>
</div>
{% endif %}
</header>
<section>
<h2>Key figures</h2>
<dl class="grid three headline">{{ figures(view.headline) }}</dl>
<dl class="grid four">{{ figures(view.figures) }}</dl>
</section>
<section>
<h2>Curves</h2>
<div class="grid three plots">
{% for plot in view.curves %}
{{ drawing(plot) }}
{% endfor %}
</div>
</section>
<section>
<h2>Hospitals</h2>
<p class="note section-note">Worst accuracy first. Accuracy and AUROC are those of the final model on each hospital's \
own test images{% if view.ledgers %}; accuracy was noised before it left{% endif %}.</p>
{% if view.hospitals %}
<div class="card scroll{{ ' long' if view.long_table }}" tabindex="0" role="region" aria-label="Table of hospitals">
<table class="hospitals">
<thead><tr>
<th scope="col">Hospital</th><th scope="col" class="number">Training images</th>
<th scope="col" class="number">Tasks sent</th><th scope="col" class="number">Updates applied</th>
<th scope="col" class="number">Refused</th><th scope="col" class="number">Accuracy</th>
<th scope="col" class="number">AUROC</th><th scope="col" class="number">Epsilon spent</th>
{% if view.with_benefit %}
<th scope="col" class="number">Accuracy gained per epsilon</th>
{% endif %}
</tr></thead>
<tbody>
{% for row in view.hospitals %}
<tr{% if row.worst %} class="worst"{% endif %}>
<th scope="row"><bdi>{{ row.hospital }}</bdi>
{% if row.worst %}
<span class="tag is-worst">worst</span>
{% endif %}
{% if row.silent %}
<span class="tag is-silent">silent</span>
{% endif %}
</th>
<td class="number">{{ show(row.examples) }}</td>
<td class="number">{{ show(row.dispatched) }}</td>
<td class="number">{{ show(row.updates) }}</td>
<td class="number">{{ show(row.refused) }}
{% if row.reasons %}
<span class="reasons">
{% for reason in row.reasons %}
<span>{{ reason }}</span>
{% endfor %}
</span>
{% endif %}
</td>
<td class="number">{{ show(row.accuracy) }}
{% if row.share is not none %}
<span class="meter"><span style="width: {{ '%.1f' % (row.share * 100) }}%"></span></span>
{% endif %}
</td>
<td class="number">{{ show(row.auroc) }}</td>
<td class="number">{{ show(row.epsilon) }}</td>
{% if view.with_benefit %}
<td class="number">{{ show(row.benefit) }}</td>
{% endif %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
{% else %}
<p class="card empty">The run has no configured hospital.</p>
{% endif %}
</section>
{% if view.ledgers %}
<section>
<h2>Privacy ledgers</h2>
<p class="note section-note">The server's mirror of every hospital's own ledger, recomputed from the declared events. \
Spent, cap and left count by the account that binds; the three accounts beside them count this run's updates. \
Scores are counted for the split they were measured on, for one image.</p>
<div class="card scroll" tabindex="0" role="region" aria-label="Table of privacy ledgers">
<table class="ledgers">
<thead><tr>
<th scope="col">Hospital</th><th scope="col">Mechanism</th><th scope="col">Protects</th>
<th scope="col" class="number">Releases</th><th scope="col" class="number">Epsilon spent</th>
<th scope="col" class="number">Cap</th><th scope="col" class="number">Left</th>
<th scope="col" class="number">Linear</th><th scope="col" class="number">RDP</th><th scope="col" class="number">PLD</th>
<th scope="col" class="number">Scores: epsilon</th>
<th scope="col">Status</th>
</tr></thead>
<tbody>
{% for row in view.ledgers %}
<tr{% if row.alarming %} class="worst"{% endif %}>
<th scope="row"><bdi>{{ row.hospital }}</bdi></th>
<td>{{ row.mechanism }}</td><td>{{ row.protects }}</td>
<td class="number">{{ show(row.releases) }}</td>
<td class="number">{{ show(row.spent) }}
<span class="meter"><span style="width: {{ '%.1f' % (row.share * 100) }}%"></span></span></td>
<td class="number">{{ show(row.cap) }}</td><td class="number">{{ show(row.left) }}</td>
<td class="number">{{ show(row.linear) }}</td><td class="number">{{ show(row.rdp) }}</td>
<td class="number">{{ show(row.pld) }}</td>
<td class="number">{% for value in row.scores %}{{ show(value) }}{% if not loop.last %}<br>{% endif %}{% endfor %}</td>
<td>{{ row.status }}</td>
</tr>
{% endfor %}
</tbody>
</table>
</div>
</section>
{% endif %}
"""
    + MASKING
    + ASYNCHRONY
    + """<section>
<h2>Participation and refusals</h2>
<div class="grid two">
{{ drawing(view.participation) }}
<div class="card">
<h3>Refused answers</h3>
{% if view.refusals %}
<p class="note">Over all hospitals and senders that are not configured.</p>
<table>
<thead><tr><th scope="col">Reason</th><th scope="col" class="number">Refused</th>
<th scope="col" class="number">of unknown senders</th></tr></thead>
<tbody>
{% for row in view.refusals %}
<tr><th scope="row">{{ row.reason }}</th><td class="number">{{ show(row.total) }}</td>
<td class="number">{{ show(row.unknown) }}</td></tr>
{% endfor %}
</tbody>
</table>
{% else %}
<p class="empty">No update was refused.</p>
{% endif %}
</div>
</div>
</section>
<section>
<h2>Communication and time</h2>
<div class="card scroll" tabindex="0" role="region" aria-label="Communication and time">
<table class="costs">
<tbody>
{% for item in view.costs %}
<tr><th scope="row">{{ item.label }}</th><td class="number">{{ show(item.value) }}</td>
<td class="note">{{ item.value.title if item.value.missing else item.note }}</td></tr>
{% endfor %}
</tbody>
</table>
</div>
</section>
<section>
<h2>What this run guarantees and what it does not</h2>
<div class="card">
{% if view.guarantees %}
<ul class="promises">
{% for sentence in view.guarantees %}
<li>{{ sentence }}</li>
{% endfor %}
</ul>
{% else %}
<p class="empty">The run states no guarantee; assume none.</p>
{% endif %}
</div>
</section>
<details>
<summary><h2>Resolved configuration</h2></summary>
<div class="card scroll" tabindex="0" role="region" aria-label="Resolved configuration">
<table>
<thead><tr><th scope="col">Key</th><th scope="col">Value</th></tr></thead>
<tbody>
{% for key, value in view.configuration %}
<tr><th scope="row"><code>{{ key }}</code></th><td><code>{{ value }}</code></td></tr>
{% endfor %}
</tbody>
</table>
</div>
</details>
<footer>Drawn from summary.json alone; numbers keep its scale. This file loads nothing and runs nothing.</footer>
</main>
</body>
</html>
"""
)
