"""The checks that every reply passes before it can touch the model; each failure is a counted, named refusal."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from federation.accounting.events import SampledGaussianRelease
from federation.errors import RefusalCode, RefusalError, SiteErrorCode
from federation.metrics import Scores
from federation.parameters import finite_norm, inner_product, require_structure
from federation.records.answers import Discarded, HospitalScores, ModelUpdate, Readiness
from federation.records.declarations import Declaration
from server_app.aggregation.rule import Update
from server_app.dispatch import Dispatch
from server_app.roster import Member

_FLOWER_RAISED = 2
_FLOWER_LIMIT = 100


def admit_update(
    answer: ModelUpdate,
    dispatch: Dispatch,
    member: Member,
    like: Mapping[str, Tensor],
    direction: Mapping[str, Tensor] | None = None,
) -> Update:
    """Return the update that `answer` carries.

    Args:
        answer: what the hospital sent.
        dispatch: the task it answers.
        member: the hospital that was asked.
        like: the global model's parameters, whose names, shapes and dtypes the update must have.
        direction: the last step of the model, if the angle to it is wanted.

    Raises:
        RefusalError: with the code of the first check that fails.
    """
    _require_answer_to(dispatch, answer.hospital_id, answer.model_version)
    if answer.examples > member.enrolment.examples:
        raise RefusalError(
            RefusalCode.MALFORMED, f"Expected at most {member.enrolment.examples} images, found {answer.examples}."
        )
    update = answer.update
    require_structure(update, like)
    norm = finite_norm(update)
    return Update(
        number=dispatch.number,
        hospital_id=answer.hospital_id,
        base_version=answer.model_version,
        examples=answer.examples,
        norm=norm,
        noise_variance=declared_variance(answer.declaration),
        cosine=0.0 if direction is None else _cosine(update, norm, direction),
        load=lambda: update,
    )


def require_readiness(answer: Readiness | Discarded, dispatch: Dispatch) -> None:
    """Check that `answer` is about the task that it answers.

    Raises:
        RefusalError: it is not.
    """
    _require_answer_to(dispatch, answer.hospital_id, answer.model_version)


def declared_variance(declaration: Declaration | None) -> float:
    """Return the relative variance of the noise in an update: squared noise multiplier times noised steps; 0 without.

    The clip norm, which is the same for all, and the learning rate do not count.
    """
    if declaration is None:
        return 0.0
    event = declaration.event
    steps = event.steps if isinstance(event, SampledGaussianRelease) else 1
    return steps * event.noise_multiplier**2


def _cosine(update: Mapping[str, Tensor], norm: float, direction: Mapping[str, Tensor]) -> float:
    """Return the cosine between the two; 0 where one of them has no length."""
    length = finite_norm(direction)
    return inner_product(update, direction) / (norm * length) if norm and length else 0.0


def admit_scores(answer: HospitalScores, dispatch: Dispatch) -> Scores:
    """Return the scores that `answer` carries.

    Raises:
        RefusalError: they do not answer `dispatch`.
    """
    _require_answer_to(dispatch, answer.hospital_id, answer.model_version)
    if answer.split != dispatch.split:
        raise RefusalError(RefusalCode.MALFORMED, f"Expected split {dispatch.split!r}, found {answer.split!r}.")
    return answer.scores


def refusal_of(error_code: int) -> RefusalError:
    """Return the refusal for a reply that is an error: a site's own code, or a node that Flower lost."""
    if error_code in set(SiteErrorCode):
        site_code = SiteErrorCode(error_code)
        if site_code is SiteErrorCode.BUDGET_EXHAUSTED:
            return RefusalError(RefusalCode.BUDGET_EXHAUSTED, site_code.sentence)
        reason = f"{RefusalCode.SITE_ERROR.value}:{site_code.name.lower().replace('_', '-')}"
        return RefusalError(RefusalCode.SITE_ERROR, site_code.sentence, reason=reason)
    if error_code == _FLOWER_RAISED or error_code >= _FLOWER_LIMIT:
        return RefusalError(RefusalCode.SITE_ERROR, f"unknown: code {error_code}.")
    return RefusalError(RefusalCode.NODE_LOST, f"Flower code {error_code}.")


def _require_answer_to(dispatch: Dispatch, hospital_id: str, model_version: int) -> None:
    if hospital_id != dispatch.hospital_id:
        raise RefusalError(
            RefusalCode.WRONG_HOSPITAL, f"Expected an answer of {dispatch.hospital_id!r}, found {hospital_id!r}."
        )
    if model_version != dispatch.model_version:
        raise RefusalError(
            RefusalCode.WRONG_VERSION, f"Expected model version {dispatch.model_version}, found {model_version}."
        )
