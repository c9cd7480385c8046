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
from functools import partial

import structlog

from ingest import metrics
from ingest.auth import Credential, Proof
from ingest.bounds import LARGE_BYTES, SMALLER, TooMany
from ingest.budget import Deadline
from ingest.clock import FAR_US, SAMPLES, ServerClock
from ingest.decode import parsed, value_at
from ingest.http import Fetched, FetchFailed, FetchRefused, Http
from ingest.limits import Limiter
from ingest.plans.protocol import Denied, Refusal, Stall
from ingest.requests import Request
from ingest.responses import Answer, Verdict, judge
from ingest.retry import backoff_s
from ingest.signing import AuthFailed, SignInLater, TooLateToSignIn
from schemas.definitions.secrets import Secrets, SecretUnavailable
from schemas.definitions.source import Action, ErrorRule, LimitsSpec
from schemas.definitions.templates import RenderError

_log = structlog.get_logger(__name__)
US = 1_000_000
PARK_S = 3600.0
"""How long a parked partition id waits where nobody says until when."""
_REFUSALS = {
    Action.TOKEN_EXPIRED: Refusal.TOKEN_EXPIRED,
    Action.SPLIT_INTERVAL: Refusal.SPLIT,
    Action.SOURCE_GAP: Refusal.GAP,
}
_WITNESSES = 4
_NOT_LET_IN = (403, 404)
"""Providers hide behind the second what they refuse by the first."""
_LOOKS = 2
"""Attempts of who looks once, where a further one will hardly help."""
_GATEWAY_TIMEOUT = 504
_OVERLOADED = (429, 503)


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

    `asked_time`: the provider was asked for its time alone, once. `deadline`: when this process
    must end, by the monotonic clock; None: never. `one_shot`: whoever asks looks once, and nobody
    asks again later.
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
    deadline: Deadline | None = None
    one_shot: bool = False

    def patience_s(self) -> float:
        """The longest wait that is sat out; a longer one becomes a time to wait until, durably.

        Negative when nothing may be asked any more.
        """
        most = self.limits.wait_max_s
        if self.deadline is None:
            return most
        return min(most, self.deadline.last_ask_s - time.monotonic())

    def left_s(self) -> float | None:
        """Seconds that an answer may take to be stored in time; None: as long as any may."""
        return None if self.deadline is None else self.deadline.answer_by_s - time.monotonic()

    async def close(self) -> None:
        """Ends its connections, after a token that is being renewed."""
        await self.credential.close()
        await self.http.close()


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
        self._hurried = False
        self._refreshed = False
        self._refused: Proof | None = None
        self._refused_with = 0
        self._why = self._help = ""

    async def run(self) -> Outcome:
        """Asks until there is an outcome; bounded by `attempts`, each wait by `wait_max`."""
        access = self._access
        for attempt in range(1, access.limits.attempts + 1):
            try:
                outcome = await self._once(attempt)
            except FetchFailed as error:
                metrics.FETCHES.labels(access.source, "failed").inc()
                if error.slow and self._hurried:
                    return self._until(0, "no time is left to store an answer")
                if error.slow:
                    access.limiter.overloaded(access.limits.timeout_s)
                if error.slow and self._can_split:
                    return Refusal.SLOW
                self._slow = error.slow
                self._why, self._help = str(error), error.unblocked_by
                if error.lasting and access.one_shot and attempt >= _LOOKS:
                    return self._unanswered(attempt)
                outcome = await self._pause(attempt)
            except TooLateToSignIn as error:
                return self._until(0, str(error))
            except SignInLater as error:
                metrics.FETCHES.labels(access.source, "failed").inc()
                self._why, self._help = str(error), ""
                outcome = await self._pause(attempt, error.wait_s)
            except (FetchRefused, SecretUnavailable, RenderError, AuthFailed) as error:
                metrics.FETCHES.labels(access.source, "refused").inc()
                known = isinstance(error, SecretUnavailable | AuthFailed)
                denied = Denied.CREDENTIALS if known else None
                return Stall(self._scrubbed(str(error)), _help_for(error), denied=denied)
            if outcome is not None:
                return outcome
        if self._slow and self._sole:
            return Refusal.SLOW
        return self._unanswered(access.limits.attempts)

    def _unanswered(self, attempts: int) -> Stall:
        often = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        helps = self._help or "the provider answering again"
        again = "" if self._access.one_shot else "; it is asked again and again"
        return Stall(
            self._scrubbed(f"no answer after {often}: {self._why}"),
            self._scrubbed(helps + again),
            passing=True,
        )

    async def _pause(self, attempt: int, told_s: float | None = None) -> Outcome | None:
        """Before an attempt after one without an answer; None: it is over."""
        wait = max(backoff_s(attempt, self._access.share()), told_s or 0.0)
        if wait > self._access.patience_s():
            return self._until(wait, self._scrubbed(self._why))
        if attempt == self._access.limits.attempts:
            return None
        await asyncio.sleep(wait)
        return None

    async def _once(self, attempt: int) -> Outcome | None:
        """One request; None: try again (any wait is over)."""
        access = self._access
        pause_s = access.limiter.pause_s
        if pause_s > access.patience_s():
            why = "this credential was throttled" if pause_s else "no time is left to ask"
            return self._until(pause_s, why)
        async with access.limiter.turn():
            try:
                async with asyncio.timeout(access.left_s()):
                    proof = await access.credential.proof()
            except TimeoutError:  # a token that is being renewed is waited for when all is closed
                return self._until(0, "no time is left to sign in")
            if access.one_shot and proof == self._refused:
                return _not_let_in(self._refused_with)  # read anew, it is what was refused
            got = await self._fetch(proof)
        verdict = judge(got.answer, self._rules, self._server_now(got.fetched))
        metrics.fetched(access.source, verdict.action.value, got.fetched.elapsed_us / US)
        self._learn(verdict, got)
        if verdict.action is Action.SUCCESS:
            return got
        if verdict.action is Action.TREAT_AS_EMPTY:
            return Got(got.fetched, got.answer, got.url, empty=True)
        if verdict.action in _REFUSALS:
            return _REFUSALS[verdict.action]
        self._why = f"{self._request.method} answered {got.answer.status}"
        self._help = ""
        self._slow = got.answer.status == _GATEWAY_TIMEOUT
        return await self._react(verdict, got, attempt, proof)

    def _learn(self, verdict: Verdict, got: Got) -> None:
        """What the answer says of how hard the provider may be asked."""
        access, elapsed_s = self._access, got.fetched.elapsed_us / US
        if access.deadline is not None:
            access.deadline.tails.fetch.note(elapsed_s)
        if verdict.action is Action.RATE_LIMITED:
            metrics.THROTTLES.labels(access.source).inc()  # the wait follows
        elif got.answer.status in _OVERLOADED:
            access.limiter.overloaded(elapsed_s)
        elif got.answer.status < 500:
            access.limiter.answered(elapsed_s)

    async def _react(
        self, verdict: Verdict, got: Got, attempt: int, proof: Proof
    ) -> Outcome | None:
        action, status = verdict.action, got.answer.status
        if action is Action.REFRESH_CREDENTIALS and not self._refreshed:
            self._refreshed, self._refused, self._refused_with = True, proof, status
            self._access.credential.refresh(proof)
            return None
        if action is Action.REFRESH_CREDENTIALS:
            return _not_let_in(status)
        if action is Action.PARK:
            wait = PARK_S if verdict.wait_s is None else verdict.wait_s
            return self._until(wait, f"parked by a rule ({status})")
        if action is Action.RATE_LIMITED or action is Action.RETRY:
            if self._slow and self._can_split:
                return Refusal.SLOW
            return await self._again(verdict, got, attempt)
        return Stall(
            f"the provider answered {status}, which no rule names",
            ("a credential that may read this; " if status in _NOT_LET_IN else "")
            + "correct the request; or say in `errors` what this answer means",
            denied=Denied.ACCESS if status in _NOT_LET_IN else None,
        )

    async def _again(self, verdict: Verdict, got: Got, attempt: int) -> Outcome | None:
        access, throttled = self._access, verdict.action is Action.RATE_LIMITED
        status, wait = got.answer.status, verdict.wait_s
        if wait is None or attempt > 1:
            # who is told "at once" again and again is not believed for ever
            wait = max(wait or 0.0, backoff_s(attempt, access.share()))
        if throttled:
            elapsed_s = got.fetched.elapsed_us / US
            access.limiter.throttled(min(wait, access.limits.wait_max_s), elapsed_s)
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
        if request.link is None:
            url = access.http.url_of(request.path)
        else:
            url = access.secrets.scrubber.restored(request.link)
        left_s = access.left_s()
        self._hurried = left_s is not None and left_s < access.limits.timeout_s
        fetched = await access.http.fetch(
            request.method,
            url,
            params=request.params,
            headers={**request.headers, **proof.headers},
            body=request.body,
            proof_params=proof.params,
            timeout_s=left_s,
        )
        if fetched.server_time is not None:
            access.clock.observe(fetched.requested_at, fetched.received_at, fetched.server_time)
            metrics.CLOCK_OFFSET.labels(access.source).set((access.clock.offset_us or 0) / US)
        body = fetched.body
        seek = None if len(body) <= LARGE_BYTES else partial(value_at, body)
        answer = Answer(fetched.status, fetched.headers, lambda: parsed(body), seek)
        return Got(fetched, answer, url)

    def _server_now(self, fetched: Fetched) -> int:
        return fetched.server_time or self._access.clock.now(fetched.received_at).server

    def _until(self, wait_s: float, why: str) -> WaitUntil:
        return WaitUntil(self._access.now_us() + int(wait_s * US), why)

    def _scrubbed(self, text: str) -> str:
        return self._access.secrets.scrubber.text(text)


def _not_let_in(status: int) -> Stall:
    return Stall(
        f"the provider refuses the credentials ({status})",
        "a valid secret where `auth` refers to, or correct `auth`",
        denied=Denied.CREDENTIALS,
    )


def _help_for(error: Exception) -> str:
    if isinstance(error, SecretUnavailable):
        return "set what the reference names"
    if isinstance(error, AuthFailed):
        return error.unblocked_by
    if isinstance(error, TooMany):
        return SMALLER
    return "correct the definition, or the provider answering rightly"


async def learn_clock(access: Access) -> None:
    """Ask once for nothing but the time, so that no interval ends in the provider's future.

    What one answer alone says may come from a node whose clock is wrong: a time far from ours is
    believed when several say so.
    """
    if access.clock.known or access.asked_time:
        return
    access.asked_time = True
    for _ in range(_WITNESSES):
        if not await _ask_time(access) or not access.clock.far_off():
            return
    _log.warning(
        "the provider's clock and this machine's are far apart: one of them is wrong",
        source=access.source,
        ahead_s=round((access.clock.offset_us or 0) / US),
        hint="set this machine's clock; while the provider's is ahead, the difference is read again"
        " with every poll",
    )


async def doubt_clock(access: Access) -> bool:
    """Nothing was left to ask although the local clock has gone on: ask for the time again.

    Whether the answer is another one now.

    One answer with a time long past would otherwise hold every poll up, and with the polls the
    answers that show it was wrong.
    """
    now = access.now_us()
    before = access.clock.now(now).server
    if now - before < FAR_US:
        return False
    for _ in range(SAMPLES):
        if not await _ask_time(access) or access.clock.agrees():
            break
    return access.clock.now(now).server - before > FAR_US


async def _ask_time(access: Access) -> bool:
    try:
        async with access.limiter.turn():
            found = await access.http.fetch("HEAD", access.http.base_url)
    except (FetchFailed, FetchRefused) as error:
        _log.info(
            "the provider did not tell its time",
            source=access.source,
            error=access.secrets.scrubber.text(str(error)),
        )
        return False
    if found.server_time is None:
        return False
    access.clock.observe(found.requested_at, found.received_at, found.server_time)
    return True
