"""A simulated site is a share with the run's seed; a deployed hospital is its own folder and takes nobody's seed."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from client_app.noise.cryptographic import CryptographicNoise
from client_app.noise.simulated import SimulatedNoise
from client_app.site import DeployedHospital, SimulatedSite, identify_site
from federation.config import parse_configuration
from federation.datasets.sites import load_site
from federation.errors import ConfigurationError, SiteError, SiteErrorCode
from tests.client_app.calls import deployed_node, flat_configuration, make_context


def identify(folder: Path, settings: dict[str, Any] | None = None, **node_config: Any) -> Any:
    flat = flat_configuration(folder, **(settings or {}))
    return identify_site(make_context(flat, **node_config), parse_configuration(flat))


def test_partition_makes_a_simulated_site_with_the_runs_seed(tmp_path: Path) -> None:
    site = identify(tmp_path, {"run__seed": 9, "run__name": "trial"}, partition_id=2, num_partitions=5)

    assert isinstance(site, SimulatedSite)
    assert (site.hospital_id, site.partition, site.partitions, site.seed) == ("hospital-002", 2, 5, 9)
    assert site.state_dir == tmp_path / "trial" / "sites"


def test_simulated_site_may_have_a_name_and_a_place_of_its_own(tmp_path: Path) -> None:
    site = identify(
        tmp_path, partition_id=0, num_partitions=1, hospital_id="north", state_dir=str(tmp_path / "x")
    )  # fmt: skip

    assert (site.hospital_id, site.state_dir) == ("north", tmp_path / "x")


def test_simulated_site_trains_with_the_seed_it_is_asked_to_use(tmp_path: Path) -> None:
    assert identify(tmp_path, partition_id=0, num_partitions=1).training_seed(1234) == 1234


@pytest.mark.parametrize(
    ("source", "kind", "answers_twice"),
    [
        ("by-site", SimulatedNoise, True),
        ("simulated", SimulatedNoise, True),
        ("cryptographic", CryptographicNoise, False),
    ],
)
def test_simulated_site_answers_twice_where_its_noise_is_the_same_every_time(
    tmp_path: Path, source: str, kind: type, answers_twice: bool
) -> None:
    site = identify(tmp_path, {"privacy__noise_source": source}, partition_id=0, num_partitions=1)

    draws = [site.noise("train", 3).uniform(4) for _ in range(2)]

    assert isinstance(site.noise("train", 3), kind)
    assert site.answers_twice is answers_twice
    assert torch.equal(*draws) is answers_twice


def test_seeded_noise_differs_by_seed_site_and_draw(tmp_path: Path) -> None:
    node: dict[str, Any] = {"num_partitions": 2}
    sites = [
        identify(tmp_path, {"run__seed": seed}, partition_id=partition, **node)
        for seed, partition in ((1, 0), (2, 0), (1, 1))
    ]

    drawn = [site.noise(*path).uniform(4) for site in sites for path in (("train", 0), ("train", 1), ("test", 0))]

    assert len({tuple(numbers.tolist()) for numbers in drawn}) == 9


def test_simulated_site_loads_its_share(tmp_path: Path) -> None:
    site = identify(tmp_path, {"run__seed": 3}, partition_id=1, num_partitions=2)

    found = site.load()

    expected = load_site(site.data, site=1, sites=2, seed=3)
    other = load_site(site.data, site=0, sites=2, seed=3)
    np.testing.assert_array_equal(found.train.images, expected.train.images)
    assert not np.array_equal(found.train.images[:10], other.train.images[:10])


def test_policy_without_partition_makes_a_deployed_hospital(tmp_path: Path) -> None:
    site = identify(tmp_path, **deployed_node(tmp_path))

    assert isinstance(site, DeployedHospital)
    assert (site.hospital_id, site.data.name, site.data.root) == ("north", "npz", str(tmp_path / "own.npz"))
    assert (site.state_dir, site.keys_dir, site.data_set) == (tmp_path / "state", tmp_path / "keys", "scans")


def test_node_configuration_may_repeat_what_the_policy_says(tmp_path: Path) -> None:
    node = deployed_node(tmp_path)
    same = {"hospital_id": "north", "data_root": str(tmp_path / "own.npz"), "state_dir": str(tmp_path / "state")}

    assert identify(tmp_path, **node | same) == identify(tmp_path, **deployed_node(tmp_path))


@pytest.mark.parametrize("key", ["hospital_id", "data_root", "state_dir"])
@pytest.mark.parametrize("value", ["other", "/other", "", 5, True])
def test_node_configuration_that_contradicts_the_policy_is_refused(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(SiteError, match="to agree with the policy") as refused:
        identify(tmp_path, **deployed_node(tmp_path) | {key: value})

    assert refused.value.code is SiteErrorCode.CONFIGURATION


@pytest.mark.parametrize("node", [{}, {"hospital_id": "north"}, {"data_root": "/data", "state_dir": "/state"}])
def test_deployed_hospital_without_a_policy_is_refused(tmp_path: Path, node: dict[str, Any]) -> None:
    with pytest.raises(SiteError, match="Expected site-policy") as refused:
        identify(tmp_path, **node)

    assert refused.value.code is SiteErrorCode.POLICY_MISSING


def test_policy_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SiteError) as refused:
        identify(tmp_path, site_policy=str(tmp_path / "site.toml"))

    assert refused.value.code is SiteErrorCode.POLICY_MISSING


def test_simulated_site_may_have_a_policy(tmp_path: Path) -> None:
    site = identify(tmp_path, partition_id=0, num_partitions=1, **deployed_node(tmp_path))

    assert isinstance(site, SimulatedSite)
    assert site.policy is not None
    assert site.policy.data.id == "scans"


def test_deployed_hospital_draws_its_seed_from_the_operating_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = identify(tmp_path, **deployed_node(tmp_path))
    monkeypatch.setattr(secrets, "randbits", lambda bits: 1000 + bits)

    assert site.training_seed(1234) == 1063


def test_deployed_hospital_ignores_the_servers_seed(tmp_path: Path) -> None:
    site = identify(tmp_path, **deployed_node(tmp_path))

    seeds = {site.training_seed(1234) for _ in range(5)}

    assert len(seeds) == 5
    assert 1234 not in seeds
    assert not hasattr(site, "seed")


@pytest.mark.parametrize("source", ["by-site", "cryptographic"])
def test_noise_of_a_deployed_hospital_is_the_operating_systems_and_no_task_is_answered_twice(
    tmp_path: Path, source: str
) -> None:
    site = identify(tmp_path, {"privacy__noise_source": source}, **deployed_node(tmp_path))

    assert isinstance(site.noise("train", 0), CryptographicNoise)
    assert not torch.equal(site.noise("train", 0).uniform(4), site.noise("train", 0).uniform(4))
    assert site.answers_twice is False


def test_deployed_hospital_refuses_simulated_noise_before_anything_else_is_asked(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="Expected cryptographic noise") as refused:
        identify(tmp_path, {"privacy__noise_source": "simulated"}, **deployed_node(tmp_path))

    assert refused.value.code is SiteErrorCode.POLICY_NOISE


def test_simulated_site_reads_the_folder_of_the_run_unless_it_has_its_own(tmp_path: Path) -> None:
    settings, node = {"data__root": "/of/the/run"}, {"partition_id": 0, "num_partitions": 1}

    assert identify(tmp_path, settings, data_root="/own", **node).data.root == "/own"
    assert identify(tmp_path, settings, **node).data.root == "/of/the/run"


def test_deployed_hospital_never_reads_a_folder_that_the_server_names(tmp_path: Path) -> None:
    settings = {"data__root": "/of/the/run", "data__name": "folder"}

    data = identify(tmp_path, settings, **deployed_node(tmp_path)).data

    assert (data.name, data.root) == ("npz", str(tmp_path / "own.npz"))


@pytest.mark.parametrize("key", ["data_root", "state_dir", "site_policy"])
@pytest.mark.parametrize("folder", ["relative", "", 3, True])
def test_folders_of_a_simulated_site_are_absolute_paths_or_refused(tmp_path: Path, key: str, folder: Any) -> None:
    with pytest.raises(SiteError, match="as an absolute path") as refused:
        identify(tmp_path, **{"partition_id": 0, "num_partitions": 1, key: folder})

    assert refused.value.code is SiteErrorCode.CONFIGURATION


@pytest.mark.parametrize("path", ["site.toml", "", 3, True])
def test_path_of_the_policy_is_absolute_or_refused(tmp_path: Path, path: object) -> None:
    with pytest.raises(SiteError, match="site-policy as an absolute path") as refused:
        identify(tmp_path, site_policy=path)

    assert refused.value.code is SiteErrorCode.CONFIGURATION


def test_deployed_hospital_holds_out_the_shares_of_its_policy_whatever_the_server_asks_for(tmp_path: Path) -> None:
    settings = {"data__validation_fraction": 0.3, "data__test_fraction": 0.4, "data__features": "wavelet"}
    node = deployed_node(tmp_path, data={"validation-fraction": 0.15, "test-fraction": 0.25})

    data = identify(tmp_path, settings, **node).data

    assert (data.validation_fraction, data.test_fraction, data.features) == (0.15, 0.25, "wavelet")


def test_deployed_hospital_whose_policy_says_no_shares_holds_out_the_defaults(tmp_path: Path) -> None:
    settings = {"data__validation_fraction": 0.3, "data__test_fraction": 0.4}

    data = identify(tmp_path, settings, **deployed_node(tmp_path)).data

    assert (data.validation_fraction, data.test_fraction) == (0.1, 0.2)


def test_deployed_hospital_does_not_make_up_images(tmp_path: Path) -> None:
    node = deployed_node(tmp_path, data={"name": "phantom"})

    with pytest.raises(ConfigurationError, match="found 'phantom', which reads none"):
        identify(tmp_path, **node).load()


@pytest.mark.parametrize(
    "node",
    [
        {"partition_id": 0, "num_partitions": 1, "hospital_id": ""},
        {"partition_id": 0, "num_partitions": 1, "hospital_id": 5},
        {"partition_id": 0, "num_partitions": 1, "hospital_id": True},
        {"partition_id": 0, "num_partitions": 1, "hospital_id": "../north"},
        {"partition_id": 0, "num_partitions": 1, "hospital_id": "a" * 65},
        {"partition_id": 0},
        {"partition_id": "0", "num_partitions": 2},
        {"partition_id": 0, "num_partitions": "2"},
        {"partition_id": 0.0, "num_partitions": 2},
        {"partition_id": True, "num_partitions": 2},
        {"partition_id": 0, "num_partitions": True},
        {"partition_id": 0, "num_partitions": 1, "hospital_id": "a/b"},
    ],
)
def test_node_configuration_that_names_no_site_is_refused(tmp_path: Path, node: dict[str, Any]) -> None:
    with pytest.raises(SiteError) as caught:
        identify(tmp_path, **node)

    assert caught.value.code is SiteErrorCode.CONFIGURATION
    assert str(caught.value).startswith("Expected ")
