"""Writes `docs/deploy/doctor.md` from the checks, so that the page cannot drift from what is checked.

`python -m deploy.doctor.page` rewrites the page; a test compares it with the checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deploy.doctor.catalogue import HOSPITAL_CHECKS, SERVER_CHECKS
from deploy.doctor.checks import Check

PAGE = Path(__file__).parents[2] / "docs" / "deploy" / "doctor.md"

_INTRODUCTION = """# aegis doctor

<!-- Generated from deploy/doctor by `python -m deploy.doctor.page`. Do not edit. -->

One command says what is wrong and how to mend it, before anybody is called. It changes nothing.

```bash
aegis doctor hospital                        # in the hospital's container: kit and policy in /etc/aegis
aegis doctor hospital --kit FOLDER --policy FOLDER/site.toml --no-network --json
aegis doctor server --folder CONSORTIUM --database state.db --runs runs --edge aegis.example:8443
```

Exit code 0: nothing failed. 1: something failed. 2: wrong usage. `--json` prints a list of results, each with `id`,
`title`, `status`, `found`, `expected` and `mend`, and how many there are of each status; ids stay the same from version
to version.

| status | meaning |
|---|---|
| `ok` | as it should be |
| `warning` | somebody should know, and decide |
| `failed` | to be mended: something does not work, or is not safe |
| `skipped` | nothing to look at here, or another check comes first |

The output says nothing that stands in an image, and no name of a file or folder of images: these may be names of
persons, so files are called *file 3 of 200 in sorted order*, and the command that turns this into a name is printed for
use inside the hospital. A check that breaks says where, not with which text. The output does say how many images there
are, of each class, too: whoever sends it to the coordinator decides whether they may know.

A check has a limit on its time: five seconds for any one answer over the network, minutes where every image is read.
"""

_NAMES_SECTION = """## What counts as a name in `phi-file-names`

Looked for are shapes that hashes, running numbers and pseudonyms such as `patient-0001` do not have; a name without
such a shape is not found. UUIDs and DICOM UIDs are left out first.

| shape | found | passed over |
|---|---|---|
| surname and given name, with a comma or caret | `Doe, John.png`, `DOE^JOHN` | `left, upper.png` |
| a date from 1900 on, between other characters | `1962-03-14.png`, `14.03.1962`, `scan_19620314` | `a19620314b` |
| seven to twelve digits that do not begin with zero | `4711815_1.png` | `00000013_005.png`, `p10000032` |
| digits behind `mrn`, `ssn` or `dob` | `MRN-0012345` | `patient-0001` |

`phi-image-text` looks for the same shapes in text chunks and EXIF, and for any text whose key speaks of a patient;
texts of programs and cameras are passed over. `phi-dicom` knows DICOM files by `DICM` at byte 128 and reads 64 kB:
files without a preamble are not known, and deflated or big-endian ones are said not to be read.
"""

_HEAD = """| id | what it looks at | expected | how to mend |
|---|---|---|---|
"""


def render_page() -> str:
    """Return the text of `docs/deploy/doctor.md`."""
    hospital = f"## Hospital: {len(HOSPITAL_CHECKS)} checks\n\n{_render(HOSPITAL_CHECKS)}"
    server = f"## Server: {len(SERVER_CHECKS)} checks\n\n{_render(SERVER_CHECKS)}"
    return "\n".join([_INTRODUCTION, hospital, _NAMES_SECTION, server])


def write_page(page: Path = PAGE) -> None:
    """Write the text of `render_page` to `page`."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render_page(), encoding="utf-8")


def _render(checks: Iterable[Check[Any]]) -> str:
    rows = [f"| `{check.id}` | {check.title} | {check.expected} | {check.mend} |\n" for check in checks]
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    write_page()
