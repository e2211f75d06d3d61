"""Why apps wait, as the service tells it over HTTP."""

import asyncio
from pathlib import Path

from tests.support.http_service import HttpService, http_service
from themis.core.arbiter import events as ev
from themis.core.model import AppId
from themis.core.model.reasons import Reason


async def why(http: HttpService, app: str, who: str = "ann") -> tuple[str, str]:
    said = (await http.call(who, "GET", f"/v1/apps/{app}/explain")).json()
    assert set(said) == {"app", "reason", "what", "why", "then"}
    line = (await http.call(who, "GET", f"/v1/apps/{app}")).json()
    assert line.get("reason", said["reason"]) == said["reason"], "the same wherever it is told"
    return said["reason"], said["why"]


def test_an_app_is_explained_from_its_arrival_to_its_end(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            await http.submit("ann", "sweep", "ann")
            assert (await why(http, "sweep"))[0] == "PENDING_EVALUATION"
            await http.call("ann", "POST", "/v1/apps/sweep/pause")
            assert (await why(http, "sweep"))[0] == "PAUSED_BY_USER"
            await http.call("root", "POST", "/v1/apps/sweep/hold")
            assert (await why(http, "sweep"))[0] == "PAUSED_BY_USER", "what comes first in the list"
            await http.call("ann", "POST", "/v1/apps/sweep/resume")
            assert (await why(http, "sweep"))[0] == "HELD_BY_ADMIN"
            await http.call("root", "POST", "/v1/apps/sweep/release")
            lost = ev.AppSuspended(http.service.now(), AppId("sweep"), Reason.AGENT_UNREACHABLE)
            http.service.loop.apply(lost)
            reason, said = await why(http, "sweep")
            assert reason == "AGENT_UNREACHABLE"
            assert "last heard" in said
            await http.call("ann", "POST", "/v1/apps/sweep/cancel")
            assert await why(http, "sweep") == (
                "ENDED", "it ended less than a second ago: cancelled",
            )  # fmt: skip

    asyncio.run(work())


def test_an_explanation_is_for_the_owner_and_admins(tmp_path: Path) -> None:
    async def work() -> None:
        async with http_service(tmp_path) as http:
            await http.submit("ann", "sweep", "ann")
            theirs = await http.call("bob", "GET", "/v1/apps/sweep/explain")
            none = await http.call("bob", "GET", "/v1/apps/nothing/explain")
            assert theirs.status_code == none.status_code == 403
            assert theirs.json()["reason"] == none.json()["reason"]
            assert (await http.call("root", "GET", "/v1/apps/sweep/explain")).status_code == 200

    asyncio.run(work())
