"""Every `Guarantee:` in the product is restated by a test, and the table below says by which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("federation", "client_app", "server_app", "aegis_cache", "deploy")

_ACCOUNTING = "tests/privacy/test_accounting_guarantees.py"
_DP_SGD = "tests/privacy/test_dp_sgd_guarantees.py"
_GENERATORS = "tests/privacy/test_generator_guarantees.py"
_LEDGER = "tests/privacy/test_ledger_guarantees.py"
_MASKING = "tests/privacy/test_masking_guarantees.py"
_NOISE = "tests/privacy/test_noise_guarantees.py"
_UPDATES = "tests/privacy/test_perturbation_guarantees.py"
_PENDING = "tests/privacy/test_pending_guarantees.py"
_RELEASES = "tests/privacy/test_release_guarantees.py"
_ANSWERS = "tests/privacy/test_what_leaves_a_hospital.py"
_ASSIGNMENT = "tests/federation/partitioning/test_assignment.py"
_HISTORIES = f"{_ACCOUNTING}::test_history_of_gaussian_releases_is_private_at_the_epsilon_of_every_account"
_CALIBRATED = f"{_ACCOUNTING}::test_calibrated_noise_makes_one_release_private"
_ONE_RELEASE = f"{_ACCOUNTING}::test_one_gaussian_release_is_private_at_the_epsilon_and_delta_it_is_said_to_cost"

_PAGES = "tests/deploy/web/test_application.py"
COVERED = {
    "aegis_cache.store.build.CacheBuild": (
        "tests/aegis_cache/store/test_build.py"
        "::test_build_stopped_at_any_access_to_the_disk_leaves_a_whole_cache_and_goes_on"
    ),
    "aegis_cache.store.cache.open_cache": (
        "tests/aegis_cache/store/test_cache.py::test_any_changed_byte_of_any_file_is_refused_by_the_name_of_the_file"
    ),
    "client_app.boundary.guarded": f"{_ANSWERS}::test_reply_to_a_failed_task_is_a_code_and_its_fixed_sentence",
    "client_app.dp_sgd.norm_survey.survey_gradient_norms": (
        f"{_DP_SGD}::test_one_image_more_adds_one_to_one_bin_of_the_norm_survey"
    ),
    "client_app.dp_sgd.training.train_with_dp_sgd": (
        f"{_DP_SGD}::test_noise_on_the_sum_is_the_multiplier_times_the_clip_norm_whoever_was_sampled"
    ),
    "client_app.ledger.anchor.Anchor": f"{_LEDGER}::test_anchor_cannot_be_moved_by_someone_without_the_key",
    "client_app.ledger.ledger.Ledger": (
        f"{_LEDGER}::test_whatever_is_asked_the_epsilon_of_everything_reserved_stays_within_the_cap"
    ),
    "client_app.ledger.row_file.RowFile": (
        f"{_LEDGER}::test_reservation_is_in_the_file_and_the_anchor_before_the_call_returns"
    ),
    "client_app.ledger.verification.audit_rows": (
        f"{_LEDGER}::test_any_changed_byte_of_any_row_keeps_the_ledger_from_being_opened"
    ),
    "client_app.main.discard_kept": (
        f"{_PENDING}::test_readiness_and_discard_are_the_same_bytes_whatever_the_images_are"
    ),
    "client_app.masking.training.train_masked": (
        f"{_MASKING}::test_every_step_is_the_weighted_sum_of_losses_that_the_mode_states_whatever_fits_into_memory"
    ),
    "client_app.noise.cryptographic.CryptographicNoise": f"{_NOISE}::test_no_noise_repeats_after_fork_or_restart",
    "client_app.noise.keystream.Keystream": f"{_NOISE}::test_no_block_of_the_keystream_repeats_after_forks",
    "client_app.pending.PendingStore": f"{_PENDING}::test_kept_result_is_loaded_bit_for_bit_or_not_at_all",
    "client_app.perturbation.clipping.clip_jointly": (
        "tests/client_app/perturbation/test_clipping.py"
        "::test_clipped_norm_never_exceeds_the_bound_and_the_direction_stays"
    ),
    "client_app.perturbation.gaussian.perturb_update": (
        f"{_UPDATES}::test_neighbours_differ_by_at_most_one_over_the_multiplier"
    ),
    "client_app.perturbation.schedule.plan_noise_multiplier": (
        f"{_UPDATES}::test_planned_updates_stay_within_the_cap_as_one_gaussian_release"
    ),
    "client_app.releasing.release": (
        f"{_RELEASES}::test_whatever_happens_every_answer_that_left_was_committed_and_the_cap_holds"
    ),
    "client_app.scoring.blur": (
        f"{_RELEASES}::test_one_image_more_moves_the_number_of_correct_answers_by_at_most_the_sensitivity"
    ),
    "deploy.bundle.verification.verify": (
        "tests/deploy/bundle/test_verification.py"
        "::test_archive_is_read_once_so_that_what_was_checked_is_what_is_written"
    ),
    "deploy.coordinator.curve.draw_accuracy": "tests/deploy/coordinator/test_curve.py::test_hostile_name_stays_a_name",
    "deploy.coordinator.page.make_page": "tests/deploy/coordinator/test_page.py::test_nothing_can_be_changed",
    "deploy.trust.certificate_files.install_server_pair": (
        "tests/deploy/trust/test_certificate_files.py"
        "::test_current_leads_to_a_fitting_pair_after_every_step_that_touches_the_disk"
    ),
    "deploy.cache.private_descent.train_privately": (
        f"{_GENERATORS}::test_noise_on_the_sum_is_the_multiplier_times_the_clip_norm_whoever_was_sampled"
    ),
    "deploy.node.clientapp": (
        "tests/deploy/node/test_clientapp.py"
        "::test_whatever_bundle_a_server_sends_the_installed_code_answers_and_nothing_of_it_is_run_or_kept"
    ),
    "deploy.status_page.forecast.releases_left": (
        "tests/deploy/status_page/test_forecast.py::test_so_many_fit_and_one_more_does_not"
    ),
    "deploy.status_page.switch.Guard": (
        "tests/deploy/status_page/test_switch.py::test_token_of_another_browser_action_or_process_does_not_count"
    ),
    "deploy.web.headers.SecurityHeaders": f"{_PAGES}::test_every_answer_carries_the_security_headers",
    "deploy.web.hosts.KnownHosts": f"{_PAGES}::test_page_answers_to_names_it_knows_and_to_no_other",
    "deploy.web.templates.environment": (f"{_PAGES}::test_template_escapes_every_value_whatever_its_file_is_called"),
    "federation.accounting.gaussian.analytic_noise_multiplier": _CALIBRATED,
    "federation.accounting.gaussian.classic_noise_multiplier": _CALIBRATED,
    "federation.accounting.gaussian.gaussian_delta": _ONE_RELEASE,
    "federation.accounting.gaussian.gaussian_epsilon": _ONE_RELEASE,
    "federation.accounting.inversion.smallest_noise_multiplier": (
        f"{_ACCOUNTING}::test_noise_found_for_a_plan_keeps_its_epsilon"
    ),
    "federation.accounting.linear.LinearAccount": _HISTORIES,
    "federation.accounting.mechanism.Mechanism": (
        f"{_ACCOUNTING}::test_no_two_neighbours_move_a_clipped_sum_further_than_the_sensitivity"
    ),
    "federation.accounting.pld.PldAccount": _HISTORIES,
    "federation.accounting.rdp.RdpAccount": _HISTORIES,
    "federation.durable.write_durably": (
        "tests/federation/test_durable.py::test_failing_step_leaves_the_old_content_and_no_temporary_file"
    ),
    "federation.partitioning.assignment.assign": (
        f"{_ASSIGNMENT}::test_every_hospital_gets_the_minimum_in_every_split"
    ),
    "server_app.report.render_report": (
        "tests/server_app/report/test_report.py::test_every_text_of_the_data_is_escaped_and_shown_as_it_is"
    ),
    "server_app.update_buffer.DiskBuffer": (
        "tests/server_app/test_update_buffer.py::test_update_that_is_held_is_there_for_the_next_server"
    ),
}

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documented(tree: ast.Module, module: str) -> Iterator[tuple[str, str]]:
    """Yield the name and docstring of a module and of everything in it that is not private."""

    def walk(node: _Documented, name: str) -> Iterator[tuple[str, str]]:
        yield name, ast.get_docstring(node) or ""
        named = [item for item in node.body if isinstance(item, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
        for child in named:
            if not child.name.startswith("_"):
                yield from walk(child, f"{name}.{child.name}")

    yield from walk(tree, module)


def promises(tree: ast.Module, module: str, section: str) -> set[str]:
    """Return the names of what has `section` in its docstring."""
    return {
        name
        for name, text in documented(tree, module)
        if any(line.strip().startswith(section) for line in text.splitlines())
    }


def modules() -> dict[str, ast.Module]:
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def everything_with(section: str) -> set[str]:
    return {name for module, tree in modules().items() for name in promises(tree, module, section)}


def test_every_guarantee_stands_in_the_table_and_nothing_else_does() -> None:
    assert everything_with("Guarantee:") == set(COVERED)


@pytest.mark.parametrize("node", sorted(set(COVERED.values())))
def test_every_named_test_exists(node: str) -> None:
    path, _, name = node.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))

    assert name in {item.name for item in tree.body if isinstance(item, ast.FunctionDef)}


def test_every_guarantee_of_privacy_says_what_it_does_not_guarantee() -> None:
    plain = ("federation.partitioning", "server_app.report", "deploy.coordinator", "deploy.web.templates")
    private = {name for name in COVERED if not name.startswith(plain)}

    # A norm that is clipped is clipped: there is nothing to misread.
    assert private - everything_with("Not guaranteed:") == {"client_app.perturbation.clipping.clip_jointly"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def a():\n    """X.\n\n    Guarantee: b.\n    """', {"m.a"}),
        ('class A:\n    def b(self):\n        """X.\n\n        Guarantee:\n            c.\n        """', {"m.A.b"}),
        ('"""X.\n\nGuarantee: y.\n"""', {"m"}),
        ('def _a():\n    """X.\n\n    Guarantee: b.\n    """', set()),
        ('def a():\n    """X.\n\n    Not guaranteed: b. No Guarantee: at all.\n    """', set()),
    ],
)
def test_guarantees_are_found_where_they_stand(source: str, expected: set[str]) -> None:
    assert promises(ast.parse(source), "m", "Guarantee:") == expected
