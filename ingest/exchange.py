"""One question to the provider until it has an answer: turns, credentials, retries, error rules.

Gives a whole answer, a refusal that a plan understands, a time to wait until, or a stall; faults of
the source are never exceptions.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from ingest import metrics
from ingest.auth import AuthFailed, Credential, Proof
from ingest.clock import ServerClock
from ingest.http import Fetched, FetchFailed, FetchRefused, Http, parsed
from ingest.limits import Limiter
from ingest.plans.protocol import Refusal, Stall
from ingest.requests import Request
from ingest.responses import Answer, Verdict, judge
from ingest.retry import backoff_s
from schemas.definitions.secrets import Secrets, SecretUnavailable
from schemas.definitions.source import Action, ErrorRule, LimitsSpec

_log = structlog.get_logger(__name__)
US = 1_000_000
PARK_S = 3600.0
"""How long a parked partition id waits where nobody says until when."""
_REFUSALS = {
    Action.TOKEN_EXPIRED: Refusal.TOKEN_EXPIRED,
    Action.SPLIT_INTERVAL: Refusal.SPLIT,
    Action.SOURCE_GAP: Refusal.GAP,
}
_GATEWAY_TIMEOUT = 504


@dataclass(frozen=True, slots=True)
class Got:
    """A whole answer that the rules accept; `empty`: a rule says to treat it as an empty page."""

    fetched: Fetched
    answer: Answer
    url: str
    empty: bool = False


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Not before this time (microseconds, local clock); why, for people."""

    at: int
    why: str


Outcome = Got | Refusal | WaitUntil | Stall


@dataclass(slots=True)
class Access:
    """How one credential of a source is asked; shared by its partition ids.

    `asked_time`: the provider was asked for its time alone, once. `ends_at_s`: when this process
    must end, by the monotonic clock; None: never.
    """

    source: str
    http: Http
    credential: Credential
    limiter: Limiter
    clock: ServerClock
    secrets: Secrets
    limits: LimitsSpec
    now_us: Callable[[], int]
    share: Callable[[], float] = random.random
    asked_time: bool = False
    ends_at_s: float | None = None

    def patience_s(self) -> float:
        """The longest wait that is sat out; a longer one becomes a time to wait until, durably."""
        most = self.limits.wait_max_s
        return most if self.ends_at_s is None else min(most, self.ends_at_s - time.monotonic())


class Exchange:
    """The retries of one question. `can_split`: a smaller question may stand in for a slow one;
    `sole`: where it cannot, the question may be given up alone, and others go on.
    """

    def __init__(
        self,
        access: Access,
        request: Request,
        rules: Sequence[ErrorRule],
        *,
        can_split: bool,
        sole: bool = False,
    ) -> None:
        self._access, self._request, self._rules = access, request, rules
        self._can_split, self._sole = can_split, sole
        self._slow = False
        self._refreshed = False
        self._why = ""

    async def run(self) -> Outcome:
        """Asks until there is an outcome; bounded by `attempts`, each wait by `wait_max`."""
        access = self._access
        for attempt in range(1, access.limits.attempts + 1):
            try:
                outcome = await self._once(attempt)
            except FetchFailed as error:
                if error.slow and self._can_split:
                    return Refusal.SLOW
                self._slow = error.slow
                self._why = str(error)
                metrics.FETCHES.labels(access.source, "failed").inc()
                outcome = await self._pause(attempt)
            except (FetchRefused, SecretUnavailable, AuthFailed) as error:
                metrics.FETCHES.labels(access.source, "refused").inc()
                return Stall(self._scrubbed(str(error)), _help_for(error))
            if outcome is not None:
                return outcome
        if self._slow and self._sole:
            return Refusal.SLOW
        return Stall(
            self._scrubbed(f"no answer after {access.limits.attempts} attempts: {self._why}"),
            "the provider answering again; it is asked again and again",
            passing=True,
        )

    async def _pause(self, attempt: int) -> Outcome | None:
        """Before an attempt after one without an answer; None: it is over."""
        if attempt == self._access.limits.attempts:
            return None
        wait = backoff_s(attempt, self._access.share())
        if wait > self._access.patience_s():
            return self._until(wait, self._why)
        await asyncio.sleep(wait)
        return None

    async def _once(self, attempt: int) -> Outcome | None:
        """One request; None: try again (any wait is over)."""
        access = self._access
        async with access.limiter.turn():
            proof = await access.credential.proof()
            got = await self._fetch(proof)
        verdict = judge(got.answer, self._rules, self._server_now(got.fetched))
        metrics.fetched(access.source, verdict.action.value, got.fetched.elapsed_us / US)
        if verdict.action is not Action.RATE_LIMITED:
            access.limiter.answered()
        if verdict.action is Action.SUCCESS:
            return got
        if verdict.action is Action.TREAT_AS_EMPTY:
            return Got(got.fetched, got.answer, got.url, empty=True)
        if verdict.action in _REFUSALS:
            return _REFUSALS[verdict.action]
        self._why = f"{self._request.method} answered {got.answer.status}"
        self._slow = got.answer.status == _GATEWAY_TIMEOUT
        return await self._react(verdict, got, attempt, proof)

    async def _react(
        self, verdict: Verdict, got: Got, attempt: int, proof: Proof
    ) -> Outcome | None:
        action, status = verdict.action, got.answer.status
        if action is Action.REFRESH_CREDENTIALS and not self._refreshed:
            self._refreshed = True
            self._access.credential.refresh(proof)
            return None
        if action is Action.REFRESH_CREDENTIALS:
            return Stall(
                f"the provider refuses the credentials ({status})",
                "a valid secret where `auth` refers to, or correct `auth`",
            )
        if action is Action.PARK:
            wait = PARK_S if verdict.wait_s is None else verdict.wait_s
            return self._until(wait, f"parked by a rule ({status})")
        if action is Action.RATE_LIMITED or action is Action.RETRY:
            if self._slow and self._can_split:
                return Refusal.SLOW
            return await self._again(verdict, status, attempt)
        return Stall(
            f"the provider answered {status}, which no rule names",
            "correct the request; or say in `errors` what this answer means",
        )

    async def _again(self, verdict: Verdict, status: int, attempt: int) -> Outcome | None:
        access, throttled = self._access, verdict.action is Action.RATE_LIMITED
        wait = verdict.wait_s
        if wait is None:
            wait = backoff_s(attempt, access.share())
        if throttled:
            access.limiter.throttled(max(0.0, min(wait, access.limits.wait_max_s)))
        if wait > access.patience_s():
            return self._until(wait, f"the provider asks to wait ({status})")
        if attempt == access.limits.attempts:
            wait = max(wait, backoff_s(attempt, access.share()))
            return self._until(wait, f"throttled ({status})") if throttled else None
        if not throttled:
            await asyncio.sleep(wait)
        return None  # a throttled one waits for its turn

    async def _fetch(self, proof: Proof) -> Got:
        access, request = self._access, self._request
        url = request.link or access.http.url_of(request.path)
        fetched = await access.http.fetch(
            request.method,
            url,
            params=request.params,
            headers={**request.headers, **proof.headers},
            body=request.body,
            proof_params=proof.params,
        )
        if fetched.server_time is not None:
            access.clock.observe(fetched.requested_at, fetched.received_at, fetched.server_time)
        answer = Answer(fetched.status, fetched.headers, lambda: parsed(fetched.body))
        return Got(fetched, answer, url)

    def _server_now(self, fetched: Fetched) -> int:
        return fetched.server_time or self._access.clock.now(fetched.received_at).server

    def _until(self, wait_s: float, why: str) -> WaitUntil:
        return WaitUntil(self._access.now_us() + int(wait_s * US), why)

    def _scrubbed(self, text: str) -> str:
        return self._access.secrets.scrubber.text(text)


def _help_for(error: Exception) -> str:
    if isinstance(error, SecretUnavailable):
        return "set what the reference names"
    if isinstance(error, AuthFailed):
        return "correct `auth`, or the secrets that it refers to"
    return "correct the definition, or the provider answering rightly"


async def learn_clock(access: Access) -> None:
    """Ask once for nothing but the time, so that no interval ends in the provider's future."""
    if access.clock.known or access.asked_time:
        return
    access.asked_time = True
    try:
        async with access.limiter.turn():
            found = await access.http.fetch("HEAD", access.http.base_url)
    except (FetchFailed, FetchRefused) as error:
        _log.info("the provider did not tell its time", source=access.source, error=str(error))
        return
    if found.server_time is not None:
        access.clock.observe(found.requested_at, found.received_at, found.server_time)
