"""Claims of two tenants, altered, truncated and exchanged: none reaches a run but its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.domain.run import RunStatus
from punctual.engine.execution.claims import (
    ClaimFinish,
    ClaimLost,
    ClaimRenewal,
    ClaimStatus,
)
from tests.support.claims.scene import ClaimsScene

TENANTS = ("acme", "globex")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."


@st.composite
def changed_claims(draw: st.DrawFn, claims: tuple[str, str]) -> str:
    """Return a text made from two claims that equals neither of them."""
    first, second = draw(st.permutations(claims))
    place = draw(st.integers(0, len(first) - 1))
    letter = draw(st.sampled_from(LETTERS))
    body, signature = first.split(".")
    other_body, other_signature = second.split(".")
    text = draw(
        st.sampled_from(
            [
                first[:place] + letter + first[place + 1 :],
                first[:place],
                first[place:],
                first + letter,
                first[:place] + second[place:],
                f"{body}.{other_signature}",
                f"{other_body}.{signature}",
                first + second,
                body,
                f"{body}.{signature}.{other_signature}",
            ]
        )
    )
    return "" if text in claims else text


@given(st.data())
def test_claims_of_two_tenants_reach_no_run_but_their_own(data: st.DataObject) -> None:
    scene = ClaimsScene()
    claims = (scene.start_run(TENANTS[0]), scene.start_run(TENANTS[1]))
    upload = scene.claims.upload(claims[1], 3, "text/csv")
    before = scene.snapshot()
    for _ in range(4):
        claim = data.draw(changed_claims(claims))
        (renewed,) = scene.claims.renew([ClaimRenewal(claim, "r", True, b"log")])
        ended = scene.claims.finish(
            [
                ClaimFinish(claim, status, output=b"1", output_upload=upload.output_upload)
                for status in ("SUCCESS", "FAILED", "RELEASED")
            ]
        )
        assert (renewed.status, set(ended)) == (ClaimStatus.LOST, {ClaimStatus.LOST})
        with pytest.raises(ClaimLost) as lost:
            scene.claims.upload(claim, 3, "text/csv")
        assert lost.value.code == "CLAIM_LOST"
    assert scene.snapshot() == before
    kept = [ClaimRenewal(claim, "r", True) for claim in claims]
    assert [answer.status for answer in scene.claims.renew(kept)] == [ClaimStatus.OK] * 2


@given(st.data())
def test_changed_name_of_an_upload_names_no_output(data: st.DataObject) -> None:
    scene = ClaimsScene()
    claims = [scene.start_run(tenant, max_retries=0) for tenant in TENANTS]
    links = [scene.claims.upload(claim, 3, "text/csv") for claim in claims]
    for number, link in enumerate(links):
        assert scene.world.memory.blobs.upload(link.url, b"of%d" % number)
    text = data.draw(changed_claims((links[0].output_upload, links[1].output_upload)))
    own = data.draw(st.sampled_from([0, 1]))
    name = data.draw(st.sampled_from([text or "x", links[1 - own].output_upload]))
    end = ClaimFinish(claims[own], "SUCCESS", output_upload=name)
    assert scene.claims.finish([end]) == [ClaimStatus.OK]
    row = scene.row(claims[own])
    assert row is not None
    assert (row.run.status, row.detail.output_blob) == (RunStatus.FAILED, "")
    assert scene.live_run(claims[1 - own]) is not None


@given(st.sampled_from(TENANTS), st.booleans())
def test_end_of_one_tenant_leaves_the_other_run_as_it_is(tenant: str, is_released: bool) -> None:
    scene = ClaimsScene()
    claims = {name: scene.start_run(name) for name in TENANTS}
    other = claims[next(name for name in TENANTS if name != tenant)]
    run = scene.live_run(other)
    status = "RELEASED" if is_released else "SUCCESS"
    assert scene.claims.finish([ClaimFinish(claims[tenant], status)]) == [ClaimStatus.OK]
    assert scene.live_run(other) == run
