"""A hospital's policy: deny by default, the stricter of policy and request wins, and no request weakens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from client_app.policy import SitePolicy, read_policy
from federation.errors import SiteError, SiteErrorCode

BASE: dict[str, Any] = {
    "hospital-id": "north",
    "state-dir": "/srv/state",
    "keys-dir": "/srv/keys",
    "data": {"id": "chest", "name": "folder", "root": "/srv/images"},
}
FULL: dict[str, Any] = BASE | {
    "privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": 4.0, "max-delta": 1e-5, "min-noise-multiplier": 0.7},
    "models": {"allowed": ["cnn"]},
    "training": {"min-examples": 50},
    "evaluation": {"metrics": "noised"},
}


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "site.toml"
    path.write_text(tomli_w.dumps(content))
    return path


def policy_of(**tables: Any) -> SitePolicy:
    return SitePolicy.model_validate(FULL | tables)


def code_of(error: pytest.ExceptionInfo[SiteError]) -> SiteErrorCode:
    return error.value.code


def test_policy_is_read_from_its_file(tmp_path: Path) -> None:
    policy = read_policy(write(tmp_path, FULL))

    assert policy == policy_of()
    assert (policy.data.id, policy.privacy.mechanisms, policy.models.allowed) == ("chest", ("dp-sgd",), ("cnn",))


def test_policy_that_says_nothing_of_masking_demands_none_and_lets_no_private_image_near_it(tmp_path: Path) -> None:
    masking = read_policy(write(tmp_path, BASE)).masking

    assert (masking.required, masking.cache, masking.min_size, masking.vary) == (False, "", 0, True)
    assert masking.modes == ("interleaved", "joint")
    assert (masking.private_images, masking.permitted_fraction) == ("unused", 1.0)


def test_demands_on_masking_are_read_from_their_table(tmp_path: Path) -> None:
    table = {
        "required": True,
        "modes": ["joint", "sequential"],
        "min-size": 512,
        "min-per-step": 64,
        "cache": "/srv/cache",
    }

    masking = read_policy(write(tmp_path, FULL | {"masking": table})).masking

    assert (masking.required, masking.modes) == (True, ("joint", "sequential"))
    assert (masking.min_size, masking.min_per_step, masking.cache) == (512, 64, "/srv/cache")


def test_missing_policy_has_a_code_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match=r"docs/site-policy\.md") as error:
        read_policy(tmp_path / "site.toml")

    assert code_of(error) is SiteErrorCode.POLICY_MISSING


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hospital-id": "a/b"}, "hospital-id"),
        ({"state-dir": "state"}, "absolute path"),
        ({"keys-dir": "/srv/state"}, "restores an old ledger"),
        ({"keys-dir": "/srv/state/keys"}, "neither within the other"),
        ({"state-dir": "/srv/keys/state"}, "neither within the other"),
        ({"keys-dir": "/srv/state/"}, "neither within the other"),
        ({"keys-dir": "/srv/other/../state/keys"}, "neither within the other"),
        ({"keys-dir": "/srv"}, "neither within the other"),
        ({"surprise": 1}, "surprise"),
        ({"data": {"id": "x y", "name": "folder", "root": "/a"}}, "data"),
        ({"data": {"id": "x", "name": "folder", "root": "images"}}, "absolute path"),
        ({"data": {**BASE["data"], "test-fraction": 0}}, "test-fraction"),
        ({"data": {**BASE["data"], "validation-fraction": 1}}, "validation-fraction"),
        ({"data": {**BASE["data"], "validation-fraction": 0.4, "test-fraction": 0.6}}, "test-fraction = 1 < 1"),
        ({"data": {**BASE["data"], "validation-fraction": 0.85}}, "test-fraction = 1.05 < 1"),
        ({"privacy": {"mechanisms": ["dp-sgd"]}}, "max-epsilon > 0"),
        ({"privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": 1.0}}, "max-delta > 0"),
        ({"privacy": {"mechanisms": ["masking"], "max-epsilon": 1.0, "max-delta": 1e-5}}, "mechanisms"),
        ({"privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": -1.0, "max-delta": 1e-5}}, "max-epsilon"),
        ({"privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": 1.0, "max-delta": 1.0}}, "max-delta"),
        ({"privacy": {"account": "renyi"}}, "account"),
        ({"privacy": {"unit": "hospital"}}, "unit"),
        ({"privacy": {"relation": "add-remove"}}, "relation"),
        ({"evaluation": {"metrics": "rounded"}}, "metrics"),
        ({"training": {"min-examples": 0}}, "min-examples"),
        ({"masking": {"cache": "cache"}}, "absolute path"),
        ({"masking": {"modes": []}}, "at least one mode"),
        ({"masking": {"modes": ["none", "joint"]}}, "none of them 'none'"),
        ({"masking": {"modes": ["gaussian"]}}, "masking.modes"),
        ({"masking": {"min-size": -1}}, "min-size"),
        ({"masking": {"min-size": 1.5}}, "min-size"),
        ({"masking": {"min-per-step": -1}}, "min-per-step"),
        ({"masking": {"required": "yes"}}, "required"),
        ({"masking": {"vary": "no"}}, "vary"),
        ({"masking": {"private-images": "all"}}, "private-images"),
        ({"masking": {"permitted-fraction": 0}}, "permitted-fraction"),
        ({"masking": {"permitted-fraction": 1.01}}, "permitted-fraction"),
        ({"masking": {"size": 100}}, "size"),
    ],
)
def test_impossible_policy_is_refused_by_name(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    with pytest.raises(SiteError, match=named) as error:
        read_policy(write(tmp_path, FULL | change))

    assert code_of(error) is SiteErrorCode.CONFIGURATION


@pytest.mark.parametrize("folders", [("state", "keys"), ("keys", "state")])
def test_folder_of_keys_that_a_link_puts_within_the_other_is_refused(tmp_path: Path, folders: tuple[str, str]) -> None:
    outer, inner = folders
    (tmp_path / outer).mkdir()
    (tmp_path / "elsewhere").symlink_to(tmp_path / outer)
    places = {f"{outer}-dir": str(tmp_path / outer), f"{inner}-dir": str(tmp_path / "elsewhere" / inner)}

    with pytest.raises(SiteError, match="neither within the other"):
        read_policy(write(tmp_path, FULL | places))


@pytest.mark.parametrize("keys", ["/srv/state-keys", "/srv/keys/state", "/srv/stat"])
def test_folders_beside_each_other_are_apart(tmp_path: Path, keys: str) -> None:
    assert read_policy(write(tmp_path, FULL | {"keys-dir": keys})).keys_dir == keys


def test_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_bytes(b"\xff = [")

    with pytest.raises(SiteError, match="cannot be read") as error:
        read_policy(path)

    assert code_of(error) is SiteErrorCode.CONFIGURATION


def test_folder_that_is_a_loop_of_links_does_not_end_the_reading(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)

    policy = read_policy(write(tmp_path, FULL | {"state-dir": str(loop)}))

    assert policy.state_dir == str(loop)


def test_policy_that_says_nothing_of_an_outbox_keeps_no_copies() -> None:
    assert (policy_of().outbox.folder, policy_of().outbox.keep) == ("", 20)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"folder": "outbox"}, "Expected an absolute path, found 'outbox'"),
        ({"folder": "/srv/outbox", "keep": 0}, "greater than or equal to 1"),
        ({"folder": "/srv/images"}, "apart from data.root='/srv/images'"),
        ({"folder": "/srv/images/outbox"}, "apart from data.root='/srv/images'"),
        ({"folder": "/srv/keys/outbox"}, "apart from keys-dir='/srv/keys'"),
        ({"folder": "/srv/state"}, "apart from state-dir='/srv/state'"),
        ({"folder": "/srv"}, "apart from data.root='/srv/images'"),
    ],
)
def test_outbox_that_could_touch_anything_else_is_refused(tmp_path: Path, table: dict[str, Any], expected: str) -> None:
    with pytest.raises(SiteError) as caught:
        read_policy(write(tmp_path, FULL | {"outbox": table}))

    assert expected in str(caught.value)


@pytest.mark.parametrize("folder", ["/srv/outbox", "/srv/state/outbox"])
def test_outbox_may_lie_on_a_volume_of_its_own_or_below_the_state(folder: str) -> None:
    assert policy_of(outbox={"folder": folder}).outbox.folder == folder
