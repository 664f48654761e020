"""The turn gate: what stands between an environment and the world.

A session owns a world, the tools over it and, for every merchant, the phase, the quota of turns, the
bookkeeping of its window and the receipts of its turns. A turn is executed whole or not at all.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from merchantbench_gym.market.world import World
from merchantbench_gym.tools import default_registry, dispatch
from merchantbench_gym.tools.calls import Batch, argument_texts, body_hash, plain_json, turn_fault
from merchantbench_gym.tools.context import Context, RiskSets, WindowBook, WindowInfo
from merchantbench_gym.tools.control import END_OF_STEP
from merchantbench_gym.tools.observation import RISKS, Observer, risk_sets
from merchantbench_gym.tools.providers import Listener, ToolProvider
from merchantbench_gym.tools.registry import Registry, Tool
from merchantbench_gym.tools.results import stamp
from merchantbench_gym.tools.turns import (
    Receipt,
    Seat,
    Turn,
    TurnRecord,
    TurnRefused,
    TurnResult,
    call_record,
    open_snapshot,
    pack_snapshot,
    rejected_outcomes,
    seat_data,
    seat_from,
)
from merchantbench_gym.tools.view import MerchantView

__all__ = ["Session", "ToolProvider", "Turn", "TurnRefused", "TurnResult"]

MAX_NOTE: Final = 64 * 1024
MAX_RECORD_TEXT: Final = 65_536

_TURN_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_NO_RISKS: Final[RiskSets] = dict.fromkeys(RISKS, frozenset())


class Session:
    """Drives a world window by window and executes the turns of its merchants.

    Args:
        world: A new world, standing at hour 0. The session owns it from now on.
        providers: Objects that add tools.
        listeners: Functions that receive the record of every turn.
        registry: Tools of the session without those of the providers; the default registry if None.
        max_turns_per_window: Limit in place of the scenario's.

    Attributes:
        world: The world; programs may read it, tools never see it.
        providers: Providers in the order they were added.
        listeners: Listeners in the order they were added.
        window: Index of the current window, from 0; of the last one after the end.
        window_t: Hour at which it opened.
        finished: Whether every merchant is done.
        turns_limit: Turns a window allows.

    Raises:
        ValueError: The limit is below 1, or two tools have the same name.
    """

    def __init__(
        self,
        world: World,
        providers: Iterable[ToolProvider] = (),
        listeners: Iterable[Listener] = (),
        registry: Registry | None = None,
        max_turns_per_window: int | None = None,
    ) -> None:
        turns = world.scenario.turns
        limit = turns.max_turns_per_window if max_turns_per_window is None else max_turns_per_window
        if limit < 1:
            raise ValueError(f"max_turns_per_window must be at least 1, got {limit}")
        self.turns_limit: int = limit
        self.providers: list[ToolProvider] = []
        self.listeners: list[Listener] = list(listeners)
        self.window = 0
        self.window_t = 0
        self.finished = False
        self._base = default_registry() if registry is None else registry
        self._registry = self._base
        self._owner: dict[str, ToolProvider] = {}
        self._denied: frozenset[str] = frozenset()
        self._adopt(world)
        # Hashes behind the digest, None where unknown; a list once filled is replaced, never written.
        self._parts: list[bytes | None] = [None] * world.merchants
        nothing = WindowBook(-1, 0, (), _NO_RISKS, _NO_RISKS, 0)
        self._seats = [Seat("waiting", 0, 0, 0, False, nothing, {}, {}) for _ in self._views]
        for provider in providers:
            self.add_provider(provider)

    # --- set-up ---

    def add_provider(self, provider: ToolProvider) -> None:
        """Add the tools of a provider.

        Raises:
            ValueError: One of its tools has the name of another.
        """
        tools = list(provider.tools)
        self._registry = Registry([*self._registry, *tools])
        self._owner.update((tool.name, provider) for tool in tools)
        self.providers.append(provider)
        self._parts.append(None)
        self._deny()

    def add_listener(self, listener: Listener) -> None:
        """Hand the record of every further turn to a function."""
        self.listeners.append(listener)

    def open(self) -> None:
        """Open the first window.

        Raises:
            RuntimeError: The session is open already, or the world has moved.
        """
        if self.world.t != 0 or any(seat.phase != "waiting" for seat in self._seats):
            raise RuntimeError("only a new session of a new world can be opened")
        self._deny()
        for m, seat in enumerate(self._seats):
            risks = risk_sets(self._views[m])
            book = WindowBook(-1, 0, self._shelf(m), _NO_RISKS, risks, self.world.net_assets(m))
            seat.phase, seat.book = "deciding", book

    # --- reading ---

    def phase(self, merchant: int) -> str:
        """Return the merchant's phase: waiting, deciding, done or closed."""
        return self._seats[merchant].phase

    def turns_used(self, merchant: int) -> int:
        """Return the turns charged to a merchant in its current or last window."""
        return self._seats[merchant].used

    def turns_left(self, merchant: int) -> int:
        """Return the turns a merchant may still make in the current window; 0 unless it is deciding."""
        seat = self._seats[merchant]
        return self.turns_limit - seat.used if seat.phase == "deciding" else 0

    def turn_results(self, merchant: int, window: int) -> list[TurnResult]:
        """Return the responses to a merchant's turns in the current or the previous window, in order."""
        seat = self._seats[merchant]
        receipts = (*seat.older.values(), *seat.receipts.values())
        return [receipt.response for receipt in receipts if receipt.response.window == window]

    def end_reason(self, merchant: int) -> str:
        """Return "horizon" or "shop_closed" once the merchant's run has ended, else ""."""
        return self.world.end_reason(merchant) if self._seats[merchant].phase == "closed" else ""

    @property
    def denied(self) -> frozenset[str]:
        """Names of the tools that are not granted in the current window."""
        return self._denied

    def view(self, merchant: int) -> MerchantView:
        """Return the merchant's view of the world."""
        return self._views[merchant]

    def book(self, merchant: int) -> WindowBook:
        """Return the bookkeeping of the merchant's window."""
        return self._seats[merchant].book

    def info(self, merchant: int) -> WindowInfo:
        """Return window and turn counters of a merchant as of now."""
        seat = self._seats[merchant]
        book = seat.book
        state = "open" if seat.phase == "deciding" else "waiting"
        if seat.phase == "closed":
            state = "closed" if self.world.end_reason(merchant) == "shop_closed" else "finished"
        used, limit = seat.used, self.turns_limit
        left = limit - used if state == "open" else 0
        return WindowInfo(seat.window, book.last_t + 1, book.open_t, used + 1, limit, left, state)

    def observe(self, merchant: int) -> dict[str, Any]:
        """Return the observation packet as of now, fresh and without any effect."""
        return self._observe(merchant, self.info(merchant), self._seats[merchant].touched)

    def text(self, merchant: int, observed: Mapping[str, Any] | None = None) -> str:
        """Return the rendered observation as of now.

        Args:
            merchant: The merchant.
            observed: Its packet as of now, to save making it again.
        """
        return self._render(merchant, self.observe(merchant) if observed is None else observed)

    def schemas(self, merchant: int) -> list[dict[str, Any]]:
        """Return fresh schemas of the tools granted in the current window, those of providers included."""
        return self._registry.schemas(self._denied)

    # --- turns ---

    def submit(self, merchant: int, turn: Turn) -> TurnResult:
        """Execute a turn, or return the stored response of a turn executed before.

        Raises:
            TurnRefused: The turn is not acceptable; nothing has changed.
            BaseException: What a listener or an interrupt raised; the turn has not happened.
        """
        receipt, note = self._admit(merchant, turn)
        if receipt is not None:
            return replace(receipt.response, replayed=True)
        return self._execute(merchant, self._seats[merchant], turn, note)

    def check(self, merchant: int, turn: Turn) -> TurnResult | None:
        """Return what `submit` would return from its receipts, or None for a turn it would execute.

        Nothing is executed: whoever submits turns of several merchants at once can check them all first.

        Raises:
            TurnRefused: `submit` would refuse the turn.
        """
        receipt, _ = self._admit(merchant, turn)
        return None if receipt is None else replace(receipt.response, replayed=True)

    def _admit(self, merchant: int, turn: Turn) -> tuple[Receipt | None, Any]:
        """Return the receipt of a turn, None for a new one, and a copy of its note.

        Raises:
            TurnRefused: The turn is not acceptable.
        """
        if type(merchant) is not int or not 0 <= merchant < len(self._seats):
            message = "there is no such merchant"
            raise TurnRefused("unknown_merchant", message, merchant, "", self.window, 0)
        seat = self._seats[merchant]
        note = self._checked_note(merchant, turn)
        if turn.turn_id is not None:
            receipt = seat.receipts.get(turn.turn_id) or seat.older.get(turn.turn_id)
            if receipt is not None:
                window = receipt.response.window if turn.window is None else turn.window
                if body_hash(window, turn.batch) != receipt.body():
                    raise self._refused(merchant, "turn_conflict", "another turn has this turn_id")
                return receipt, note
        if self.finished:
            raise self._refused(merchant, "run_finished", "the run is over")
        if seat.phase == "closed":
            raise self._refused(merchant, "shop_closed", "the shop is closed for good")
        if turn.window is not None and turn.window != self.window:
            raise self._refused(merchant, "stale_window", f"the current window is {self.window}")
        if seat.phase != "deciding":
            raise self._refused(merchant, "not_deciding", "the merchant's step has ended")
        return None, note

    def _checked_note(self, merchant: int, turn: Turn) -> Any:
        """Check id, window and note of a turn; returns a copy of the note."""
        turn_id, window = turn.turn_id, turn.window
        if turn_id is not None and not (isinstance(turn_id, str) and _TURN_ID.fullmatch(turn_id)):
            message = "turn_id must be 1 to 64 characters of A-Z a-z 0-9 . _ : -"
            raise self._refused(merchant, "invalid_turn", message)
        if window is not None and (type(window) is not int or window < 0):
            raise self._refused(merchant, "invalid_turn", "window must be a window index from 0")
        if turn.note is None:
            return None
        try:
            return plain_json(turn.note, MAX_NOTE)
        except ValueError as error:
            raise self._refused(merchant, "invalid_turn", f"the note is unfit: {error}") from None

    def _refused(self, merchant: int, code: str, message: str) -> TurnRefused:
        phase, left = self._seats[merchant].phase, self.turns_left(merchant)
        return TurnRefused(code, message, merchant, phase, self.window, left)

    def _execute(self, merchant: int, seat: Seat, turn: Turn, note: Any) -> TurnResult:
        batch = turn.batch
        turn_id = turn.turn_id or self._fresh_id(seat)
        before = seat.used, seat.touched, seat.phase
        scope = _Undo(self, merchant)
        try:
            rejected = turn_fault(batch, self.world.scenario.turns.max_calls_per_turn) or ""
            if rejected:
                outcomes = rejected_outcomes(batch, rejected)
            else:
                ctx = self._context(merchant, seat, scope)
                outcomes = dispatch.execute(batch, self._registry, self._denied, ctx, scope.mark)
            last = outcomes[-1] if outcomes else None
            ended = last is not None and last.call.name == END_OF_STEP and not last.code
            used = seat.used + (not (ended and len(outcomes) == 1))
            closed_by = "end_of_step" if ended else "quota" if used >= self.turns_limit else ""
            response = TurnResult(
                turn_id=turn_id,
                window=self.window,
                turn=seat.used + 1,
                turns_used=used,
                turns_left=0 if closed_by else self.turns_limit - used,
                answers=tuple([(o.call.id, o.call.name, o.content) for o in outcomes]),
                rejected=rejected,
                step_done=bool(closed_by),
                window_closed_by=closed_by,
            )
            self._publish(merchant, batch, note, response, outcomes)
            seat.used = used
            seat.touched = seat.touched or scope.touched
            if closed_by:
                seat.phase = "done"
            seat.receipts[turn_id] = Receipt(batch, "", response)
        except BaseException:
            scope.undo()
            seat.used, seat.touched, seat.phase = before
            seat.receipts.pop(turn_id, None)
            raise
        return response

    def _fresh_id(self, seat: Seat) -> str:
        # Turns of one window are not all charged, but an uncharged one is the last: numbers are distinct.
        turn_id = f"{self.window}.{seat.used + 1}"
        while turn_id in seat.receipts or turn_id in seat.older:
            turn_id += "_"
        return turn_id

    def _context(self, merchant: int, seat: Seat, scope: _Undo) -> Context:
        scenario = self.world.scenario
        info = self.info(merchant)

        def observation() -> dict[str, Any]:
            return self._observe(merchant, info, seat.touched or scope.touched)

        return Context(
            view=self._views[merchant],
            scenario=scenario,
            language=scenario.brief.language,
            merchant=merchant,
            window=info,
            book=seat.book,
            observation=observation,
            text=lambda: self._render(merchant, observation()),
            schemas=lambda: self.schemas(merchant),
        )

    def _observe(self, merchant: int, info: WindowInfo, touched: bool) -> dict[str, Any]:
        book = self._seats[merchant].book
        return self._observers[merchant].packet(
            info,
            book,
            report_tool="get_daily_report" not in self._denied,
            # Nothing but the merchant's own hand changes a risk inside a window.
            risks=None if touched else book.risks_at_open,
        )

    def _render(self, merchant: int, observed: Mapping[str, Any]) -> str:
        return self._observers[merchant].text(observed, self._seats[merchant].book)

    # --- records ---

    def _publish(
        self,
        merchant: int,
        batch: Batch,
        note: Any,
        response: TurnResult,
        outcomes: list[dispatch.Outcome],
    ) -> None:
        """Hand the record of a turn to the listeners; it is made only if there are any."""
        if not self.listeners:
            return
        full = any(getattr(listener, "needs_digest", True) for listener in self.listeners)
        # Arguments are copied for a listener that might change them.
        copies = not all(getattr(listener, "reads_only", False) for listener in self.listeners)
        texts = argument_texts(batch) if full and batch.fault is None else None
        record = TurnRecord(
            merchant=merchant,
            window=response.window,
            turn=response.turn,
            turn_id=response.turn_id,
            body_hash=body_hash(response.window, batch, texts) if full else "",
            time=stamp(self._seats[merchant].book.open_t),
            text=batch.text[:MAX_RECORD_TEXT],
            note=note,
            charged=response.turns_used >= response.turn,
            rejected=response.rejected,
            window_closed_by=response.window_closed_by,
            turns_used=response.turns_used,
            calls=[call_record(outcome, copies) for outcome in outcomes],
            net_assets=self.world.net_assets(merchant),
            state_digest=self.digest() if full else "",
        )
        record.arguments = texts
        for listener in self.listeners:
            shared = len(self.listeners) > 1 and not getattr(listener, "reads_only", False)
            listener(copy.deepcopy(record) if shared else record)

    def digest(self) -> str:
        """Return SHA-256 (hex) of the state that turns act on: merchants' fingerprints, providers' state."""
        parts = [self._part(place) if part is None else part for place, part in enumerate(self._parts)]
        self._parts = list(parts)
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def _part(self, place: int) -> bytes:
        """Hash of one merchant, or of a provider, which come after the merchants."""
        number = place - self.world.merchants
        if number < 0:
            return self.world.fingerprint(place)
        state = self.providers[number].snapshot()
        # One without state leaves no trace here, so what it changes from some window on can be told apart.
        return hashlib.sha256(state).digest() if state else b""

    # --- clock ---

    def advance(self) -> None:
        """Run the clock to the next window, or to the end if there is none or no shop is alive.

        Raises:
            RuntimeError: A merchant is still deciding, or the run is over.
        """
        if self.finished:
            raise RuntimeError("the run is over")
        waiting = [m for m, seat in enumerate(self._seats) if seat.phase in ("deciding", "waiting")]
        if waiting:
            raise RuntimeError(f"merchants {waiting} have not ended their step")
        # An interrupted hour cannot be continued, so the world goes back to where it stood.
        mark, seats = self.world.mark(), self._seats
        before = self.window, self.window_t, self.finished, self._denied
        try:
            self._run_clock()
        except BaseException:
            self.world.go_back(mark)
            self._adopt(self.world)
            self._seats = seats
            self.window, self.window_t, self.finished, self._denied = before
            raise
        finally:
            self._parts = [None] * len(self._parts)

    def _run_clock(self) -> None:
        world = self.world
        playing = [m for m, seat in enumerate(self._seats) if seat.phase == "done"]
        closings = [self._closing(m) for m in playing]
        target = (self.window + 1) * world.scenario.run.activation_period
        if target < world.horizon:
            world.advance(target)
        if not world.finished and (target >= world.horizon or not any(world.alive(m) for m in playing)):
            world.advance()
        for m in playing:
            if not world.alive(m) and not world.done(m):
                world.wind_down(m)
        self.finished = world.finished
        if not self.finished:
            self.window += 1
            self.window_t = target
            if self.providers:
                self._deny()
        seats = self._seats.copy()
        for m, closing in zip(playing, closings, strict=True):
            seats[m] = self._next_seat(m, *closing)
        self._seats = seats

    def _closing(self, merchant: int) -> tuple[RiskSets, int]:
        """Return risk sets and net assets of a merchant as its window closes."""
        seat = self._seats[merchant]
        risks = risk_sets(self._views[merchant]) if seat.touched else seat.book.risks_at_open
        return risks, self.world.net_assets(merchant)

    def _next_seat(self, merchant: int, risks: RiskSets, net_assets: int) -> Seat:
        """Return the seat in the next window, or the final one, whose book ends at the final hour."""
        seat, going = self._seats[merchant], not self.world.done(merchant)
        open_t = self.window_t if going else self._final_hour(merchant)
        now = risk_sets(self._views[merchant])
        shelf = self._shelf(merchant) if seat.touched or not going else seat.book.shelf
        book = WindowBook(seat.window_t, open_t, shelf, risks, now, net_assets)
        if going:
            return Seat("deciding", self.window, self.window_t, 0, False, book, {}, seat.receipts)
        return Seat("closed", seat.window, seat.window_t, seat.used, False, book, seat.receipts, seat.older)

    def _final_hour(self, merchant: int) -> int:
        hour = self.world.final_hour(merchant)
        assert hour is not None  # the merchant is done
        return hour

    def _shelf(self, merchant: int) -> tuple[int, ...]:
        return self.world.shelf_tuple(merchant)

    def _deny(self) -> None:
        denied = set(self.world.scenario.tools.denied)
        for provider in self.providers:
            rule = getattr(provider, "denied", None)
            if rule is not None:
                denied.update(rule(self.window))
        self._denied = frozenset(denied) - {END_OF_STEP}

    # --- copies ---

    def _adopt(self, world: World) -> None:
        self.world = world
        self._views = [MerchantView(world, m) for m in range(world.merchants)]
        self._observers = [Observer(view, world.scenario) for view in self._views]

    def clone(self) -> Session:
        """Return an independent session in the same state, with cloned providers and without listeners."""
        twin = copy.copy(self)
        twin._adopt(self.world.clone())
        twin._seats = [seat.copy() for seat in self._seats]
        twin.listeners = []
        twin.providers, twin._registry, twin._owner = [], self._base, {}
        twin._parts = self._parts[: self.world.merchants]
        for provider in self.providers:
            twin.add_provider(provider.clone())
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        """As `clone`."""
        return self.clone()

    def snapshot(self) -> bytes:
        """Return the whole state as portable bytes without executable content; equal states, equal bytes."""
        blobs = [self.world.snapshot(), *(provider.snapshot() for provider in self.providers)]
        head = {
            "turns_limit": self.turns_limit,
            "window": self.window,
            "window_t": self.window_t,
            "finished": self.finished,
            "seats": [seat_data(seat) for seat in self._seats],
        }
        return pack_snapshot(head, blobs)

    def restore(self, data: bytes) -> None:
        """Take over the state of a snapshot of a session with the same scenario, seed, limit and providers.

        Raises:
            MarketError: The bytes are damaged or belong to another kind of session; nothing has changed.
        """
        expected = {"turns_limit": self.turns_limit}
        head, blobs = open_snapshot(bytes(data), expected, len(self._seats), len(self.providers))
        seats = [seat_from(item) for item in head["seats"]]
        before, backup = [provider.snapshot() for provider in self.providers], self.world.clone()
        try:
            self.world.restore(blobs[0])
            for provider, blob in zip(self.providers, blobs[1:], strict=True):
                provider.restore(blob)
        except BaseException:
            self._adopt(backup)
            for provider, blob in zip(self.providers, before, strict=True):
                provider.restore(blob)
            raise
        # Views keep what they read by the hour, which is that of another past now.
        self._adopt(self.world)
        self._seats = seats
        self.window, self.window_t, self.finished = head["window"], head["window_t"], head["finished"]
        self._parts = [None] * len(self._parts)
        self._deny()


class _Undo:
    """Undo scope of a turn: the state before its first WRITE call on the shelf and on each provider.

    Attributes:
        touched: Whether any WRITE call was begun.
    """

    def __init__(self, session: Session, merchant: int) -> None:
        self.session = session
        self.merchant = merchant
        self.touched = False
        self.first: dict[int, Callable[[], None]] = {}
        self.parts = session._parts

    def mark(self, tool: Tool) -> Callable[[], None]:
        """Mark the state before a WRITE call; returns what goes back to it."""
        self.touched = True
        session = self.session
        provider = session._owner.get(tool.name)
        if provider is None:
            world, place = session.world, self.merchant
            back = functools.partial(world.shelf_undo, world.shelf_token(self.merchant))
        else:
            back = functools.partial(provider.restore, provider.snapshot())
            place = session.world.merchants + session.providers.index(provider)
        session._parts = [None if i == place else part for i, part in enumerate(session._parts)]
        self.first.setdefault(id(provider), back)
        return back

    def undo(self) -> None:
        """Go back to the state before the turn."""
        for back in self.first.values():
            back()
        self.session._parts = self.parts
