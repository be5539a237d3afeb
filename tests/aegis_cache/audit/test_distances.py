"""Nearest neighbours are exact, whatever the size of the sets, their offset, or how close they come."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from aegis_cache.audit import distances
from aegis_cache.audit.distances import find_nearest
from federation.errors import DataError


def draw(count: int, width: int, seed: int, *, offset: float = 0.0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) + offset


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("k", [1, 2, 30])
def test_neighbours_are_those_of_scikit_learn(k: int, offset: float) -> None:
    queries, references = draw(50, 17, 0, offset=offset), draw(30, 17, 1, offset=offset)

    found = find_nearest(queries, references, k=k)

    expected = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(references.double().numpy())
    lengths, indices = expected.kneighbors(queries.double().numpy())
    np.testing.assert_array_equal(found.indices.numpy(), indices)
    np.testing.assert_allclose(found.distances.numpy(), lengths, rtol=1e-9, atol=1e-9)


def test_an_image_is_not_its_own_neighbour_but_its_copy_is() -> None:
    points = draw(40, 5, 0)
    points[7] = points[31]

    found = find_nearest(points, points, k=2, exclude_self=True)

    expected = NearestNeighbors(n_neighbors=2, algorithm="brute").fit(points.double().numpy()).kneighbors()
    np.testing.assert_allclose(found.distances.numpy(), expected[0], rtol=1e-9)
    assert found.indices[[7, 31], 0].tolist() == [31, 7]
    assert float(found.distances[7, 0]) == 0.0


def test_all_others_can_be_asked_for() -> None:
    points = torch.tensor([[0.0], [1.0], [3.0]])

    found = find_nearest(points, points, k=2, exclude_self=True)

    assert found.indices.tolist() == [[1, 2], [0, 2], [1, 0]]
    assert found.distances.tolist() == [[1.0, 3.0], [1.0, 2.0], [2.0, 3.0]]


def test_differences_that_float32_cannot_see_in_squares_still_decide() -> None:
    # All references lie 1000 from their mean and about 1e-3 from the query; squares of 1e6 hide that in float32.
    ring = torch.zeros(40, 2)
    ring[:20, 0], ring[20:, 0] = 1000.0, -1000.0
    ring[:20, 1] = torch.linspace(2e-3, 1e-3, 20)
    query = torch.tensor([[1000.0, 0.0]])

    found = find_nearest(query, ring, k=2)

    assert found.indices.tolist() == [[19, 18]]
    assert float(found.distances[0, 0]) == pytest.approx(1e-3, rel=1e-6)


@pytest.mark.parametrize("count", [4, 50])
def test_equal_distances_go_to_the_lower_index(count: int) -> None:
    references = torch.ones(count, 3)

    found = find_nearest(torch.zeros(1, 3), references, k=3)

    assert found.indices.tolist() == [[0, 1, 2]]


def test_an_image_among_many_equal_ones_is_still_not_its_own_neighbour() -> None:
    points = torch.ones(50, 3)

    found = find_nearest(points, points, exclude_self=True)

    assert found.indices[:, 0].tolist() == [1] + [0] * 49


def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, references = draw(23, 6, 0), draw(19, 6, 1)
    whole = find_nearest(queries, references, k=2)
    own = find_nearest(queries, queries, exclude_self=True)
    monkeypatch.setattr(distances, "_BYTES", 8 * 19 * 4)

    pieces = find_nearest(queries, references, k=2)
    own_pieces = find_nearest(queries, queries, exclude_self=True)

    assert torch.equal(pieces.indices, whole.indices)
    assert torch.equal(own_pieces.indices, own.indices)
    torch.testing.assert_close(own_pieces.distances, own.distances)


def test_no_queries_have_no_neighbours() -> None:
    found = find_nearest(torch.zeros(0, 3), draw(4, 3, 0), k=2)

    assert found.indices.shape == found.distances.shape == (0, 2)


@pytest.mark.parametrize(
    ("queries", "references", "k", "exclude_self"),
    [
        pytest.param(torch.zeros(2, 3), torch.zeros(1, 3), 2, False, id="too few"),
        pytest.param(torch.zeros(2, 3), torch.zeros(2, 3), 2, True, id="too few without itself"),
        pytest.param(torch.zeros(2, 3), torch.zeros(2, 4), 1, False, id="widths"),
        pytest.param(torch.tensor([[torch.nan]]), torch.zeros(2, 1), 1, False, id="not finite"),
    ],
)
def test_impossible_questions_are_refused(queries: Tensor, references: Tensor, k: int, exclude_self: bool) -> None:
    with pytest.raises(DataError, match="Expected"):
        find_nearest(queries, references, k=k, exclude_self=exclude_self)
