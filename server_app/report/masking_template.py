"""The section about masking, part of `server_app.report.template` and written in its macros."""

from __future__ import annotations

MASKING = """{% if view.masking %}
{% set part = view.masking %}
<section>
<h2>Masking</h2>
<p class="note section-note">{{ part.lead }}</p>
<dl class="grid four">{{ figures(part.figures) }}</dl>
<p class="note section-note after">Expected share of a hospital's n training images that a server with k bins reads \
verbatim out of one update, by counting: (1 - 1/k)^(n - 1) without masking and (1 - 1/k)^(n + M - 1) with it. \
{% if not part.counted %}
Here synthetic images do not weigh as much as real ones, so they are not counted: the columns with masking hold the \
shares of M = 0. \
{% endif %}
A count, not a bound: it takes all images as one sum and bins as equally wide. A server that lets only one step or one \
class move its bins, or makes them uneven, reads more; so does one that tells synthetic images from real ones. Shares \
are rounded up; those above the target of {{ part.target }} are marked. M is what the server asked for; it cannot \
verify what a hospital did.</p>
{% if part.rows %}
<div class="card scroll{{ ' long' if view.long_table }}" tabindex="0" role="region" aria-label="Table of masking">
<table class="masking">
<thead><tr>
<th scope="col">Hospital</th><th scope="col" class="number">Training images (n)</th>
<th scope="col" class="number">Synthetic images (M)</th>
<th scope="col" class="number">Weight of a synthetic image</th>
<th scope="col" class="number">Without masking, k&nbsp;=&nbsp;{{ part.bins[0] }}</th>
{% for bins in part.bins %}
<th scope="col" class="number">With masking, k&nbsp;=&nbsp;{{ bins }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in part.rows %}
<tr{% if row.above %} class="worst"{% endif %}>
<th scope="row"><bdi>{{ row.hospital }}</bdi>
{% if row.above %}
<span class="tag is-worst">above target</span>
{% endif %}
</th>
<td class="number">{{ show(row.images) }}</td><td class="number">{{ show(row.synthetic) }}</td>
<td class="number">{{ show(row.weight) }}</td><td class="number">{{ show(row.unmasked) }}</td>
{% for share in row.masked %}
<td class="number{{ ' alarming' if share.above }}">{{ show(share.value) }}
{% if share.above %}
<span class="detail">above target</span>
{% endif %}
</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
{% endif %}
<div class="grid two">
<div class="card">
<h3>What masking does</h3>
<ul class="promises">
{% for sentence in part.effects %}
<li>{{ sentence }}</li>
{% endfor %}
</ul>
</div>
<div class="card">
<h3>What masking does not protect against</h3>
<ul class="promises">
{% for gap in part.gaps %}
<li>{{ gap }}</li>
{% endfor %}
</ul>
<p class="note">{{ part.account }}</p>
</div>
</div>
</section>
{% endif %}
"""
