"""How checks are carried out: whatever one does, there is a result, and it says nothing that it should not."""

from __future__ import annotations

import threading
from dataclasses import replace

from deploy.doctor.checks import Check, Finding, Status, carry_out, count, failed, ok, skipped, warning


def make(name: str, look: Finding | BaseException, **changes: object) -> Check[None]:
    def see(site: None) -> Finding:
        if isinstance(look, BaseException):
            raise look
        return look

    values = {"title": f"the {name}", "expected": "good", "mend": f"mend the {name}", "look": see, **changes}
    return Check(id=name, **values)  # type: ignore[arg-type]


def test_result_says_how_to_mend_what_is_wrong_and_nothing_where_all_is_well() -> None:
    checks = [
        make("a", ok("fine")),
        make("b", failed("bad")),
        make("c", warning("odd", "ask")),
        make("d", skipped("none")),
    ]

    results = list(carry_out(checks, None))

    assert [(result.status, result.mend) for result in results] == [
        (Status.OK, ""),
        (Status.FAILED, "mend the b"),
        (Status.WARNING, "ask"),
        (Status.SKIPPED, ""),
    ]
    assert count(results) == {"ok": 1, "warning": 1, "failed": 1, "skipped": 1}


def test_check_that_breaks_fails_with_kind_and_place_and_without_the_error_s_text() -> None:
    results = list(carry_out([make("a", ValueError("DOE^JOHN")), make("b", ok("fine"))], None))

    assert [result.status for result in results] == [Status.FAILED, Status.OK]
    assert results[0].found.startswith("the check itself broke: ValueError in test_checks.py, line ")
    assert "DOE" not in str(results[0].as_dict())


def test_check_that_ends_its_process_ends_nothing() -> None:
    (result,) = carry_out([make("a", SystemExit(3))], None)

    assert result.status is Status.FAILED


def test_check_that_hangs_is_left_behind() -> None:
    hang = threading.Event()
    check = replace(make("a", ok("never")), look=lambda site: ok(str(hang.wait())), limit_s=0.05)

    (result,) = carry_out([check], None)
    hang.set()

    assert (result.status, result.found) == (Status.FAILED, "no result within 0.05 s")


def test_what_needs_a_failed_check_is_skipped_and_so_is_what_needs_that() -> None:
    looked: list[str] = []
    checks = [
        make("a", failed("bad")),
        make("b", ok("fine"), needs=("a",)),
        make("c", ok("fine"), needs=("b",)),
        make("d", warning("odd")),
        make("e", ok("fine"), needs=("d",)),
        make("f", skipped("none")),
        make("g", ok("fine"), needs=("f",)),
    ]

    results = {result.id: result for result in carry_out(checks, None, started=looked.append)}

    assert results["b"].found == "not looked at: a comes first"
    assert results["c"].found == "not looked at: b comes first"
    assert results["e"].status is results["g"].status is Status.OK
    assert looked == ["the a", "the d", "the e", "the f", "the g"]


def test_without_network_only_what_needs_it_is_skipped() -> None:
    checks = [make("a", failed("bad"), network=True), make("b", ok("fine"), needs=("a",))]

    results = list(carry_out(checks, None, network=False))

    assert [result.status for result in results] == [Status.SKIPPED, Status.OK]
