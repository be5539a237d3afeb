"""The section about asynchrony, part of `server_app.report.template` and written in its macros."""

from __future__ import annotations

ASYNCHRONY = """{% if view.asynchrony %}
{% set part = view.asynchrony %}
<section>
<h2>Asynchrony</h2>
<p class="note section-note">{{ part.rule | join(" ") }}</p>
<dl class="grid four">{{ figures(part.figures) }}</dl>
<div class="grid two">
{% for plot in part.plots %}
{{ drawing(plot) }}
{% endfor %}
</div>
<p class="note section-note after">Least weight for its size first. Weight is the sum of the coefficients with which \
updates were added. Weight for size divides its share by the share that size alone would give: 1 is fair, and below \
{{ part.drowned }} a hospital counts as drowned. Factors are means over the applied updates and tell why: old updates \
have a low staleness factor, noisy ones a low noise factor, and a hospital that is seldom heard has few. A factor that \
was 1 in every update is left out.</p>
{% if part.rows %}
<div class="card scroll{{ ' long' if view.long_table }}" tabindex="0" role="region" aria-label="Table of influence">
<table class="influence">
<thead><tr>
<th scope="col">Hospital</th><th scope="col" class="number">Share of updates</th>
<th scope="col" class="number">Share of weight</th><th scope="col" class="number">By size alone</th>
<th scope="col" class="number">Weight for size</th><th scope="col" class="number">Staleness</th>
{% for factor in part.factors %}
<th scope="col" class="number">Factor: {{ factor }}</th>
{% endfor %}
<th scope="col" class="number">Too late</th>
</tr></thead>
<tbody>
{% for row in part.rows %}
<tr{% if row.cause %} class="worst"{% endif %}>
<th scope="row"><bdi>{{ row.hospital }}</bdi>
{% if row.cause %}
<span class="tag is-worst">drowned</span><span class="tag is-silent">{{ row.cause }}</span>
{% endif %}
</th>
<td class="number">{{ show(row.updates) }}</td><td class="number">{{ show(row.weight) }}</td>
<td class="number">{{ show(row.size) }}</td><td class="number">{{ show(row.ratio) }}</td>
<td class="number">{{ show(row.staleness) }}</td>
{% for factor in row.factors %}
<td class="number">{{ show(factor) }}</td>
{% endfor %}
<td class="number">{{ show(row.unused) }}
{% if row.reasons %}
<span class="reasons">
{% for reason in row.reasons %}
<span>{{ reason }}</span>
{% endfor %}
</span>
{% endif %}
</td>
</tr>
{% endfor %}
</tbody>
</table>
</div>
{% endif %}
</section>
{% endif %}
"""
