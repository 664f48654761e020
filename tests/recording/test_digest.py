"""The digest of a session follows its state, whatever became of the turns before."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.market.world import World
from merchantbench_gym.session import Session
from tests.session_kit import END, Counter, faulty_registry, listing, on_offer, opened, play, world

MERCHANTS = 2


def session_of(**options: Any) -> Session:
    return opened(merchants=MERCHANTS, providers=[Counter()], registry=faulty_registry(), **options)


def from_nothing(session: Session) -> str:
    """Digest of another session that is put into the same state and has never been asked."""
    other = Session(world(merchants=MERCHANTS), providers=[Counter()], registry=faulty_registry())
    other.restore(session.snapshot())
    return other.digest()


class Refusing:
    """A listener that asks for digests and, when told to, undoes the turn."""

    def __init__(self) -> None:
        self.armed = False
        self.seen: list[str] = []

    def __call__(self, record: Any) -> None:
        self.seen.append(record["state_digest"])
        if self.armed:
            self.armed = False
            raise OSError("no room")


def end_all(session: Session) -> None:
    for merchant in range(MERCHANTS):
        if session.phase(merchant) == "deciding":
            play(session, END, merchant=merchant)


def interrupt_the_clock(session: Session) -> None:
    end_all(session)
    advance = World.advance

    def broken(market: World, until: int | None = None) -> int:
        advance(market, market.t + 3)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(World, "advance", broken)
        session.advance()


def run_the_clock(session: Session) -> None:
    end_all(session)
    session.advance()


CALLS = ("list", "reprice", "bump", "bump and fail", "list_then_fail", "list_then_refuse", "query_balance")
OTHERS = ("undone", "interrupted", "clock", "clock interrupted", "clone", "deepcopy", "restore")


def make(session: Session, refusing: Refusing, what: str, merchant: int) -> Session:
    """Do something; returns the session to go on with."""
    calls: dict[str, tuple[str, Any]] = {
        "list": listing(*on_offer(session, 3), price=35.0 + merchant),
        "reprice": listing(*on_offer(session, 1), price=50.0 + session.turns_used(merchant)),
        "bump and fail": ("bump", {"fail": True}),
    }
    if what in CALLS:
        if session.phase(merchant) == "deciding":
            play(session, calls.get(what, (what, {})), merchant=merchant)
    elif what in ("undone", "interrupted"):
        refusing.armed = what == "undone" and session.phase(merchant) == "deciding"
        last: tuple[str, Any] = (
            ("list_then_interrupt", {}) if what == "interrupted" else ("query_balance", {})
        )
        if session.phase(merchant) == "deciding":
            with pytest.raises((OSError, KeyboardInterrupt)):
                play(session, calls["list"], ("bump", {}), last, merchant=merchant)
    elif what == "clock":
        run_the_clock(session)
    elif what == "clock interrupted":
        interrupt_the_clock(session)
    elif what in ("clone", "deepcopy"):
        session = session.clone() if what == "clone" else copy.deepcopy(session)
        session.add_listener(refusing)
    else:
        session.restore(session.snapshot())
    return session


@given(steps=st.lists(st.tuples(st.sampled_from(CALLS + OTHERS), st.integers(0, MERCHANTS - 1)), max_size=12))
@settings(max_examples=30)
def test_digest_is_that_of_the_state(steps: list[tuple[str, int]]) -> None:
    refusing = Refusing()
    session = session_of(listeners=[refusing])
    for what, merchant in steps:
        session = make(session, refusing, what, merchant)
        if not session.finished:
            assert session.digest() == from_nothing(session), what


@given(steps=st.lists(st.tuples(st.sampled_from(CALLS + OTHERS), st.integers(0, MERCHANTS - 1)), max_size=12))
@settings(max_examples=10)
def test_listeners_do_not_change_it(steps: list[tuple[str, int]]) -> None:
    refusing, ignoring = Refusing(), Refusing()
    ignoring.needs_digest = False  # type: ignore[attr-defined]
    asked, silent = session_of(listeners=[refusing]), session_of(listeners=[ignoring])
    for what, merchant in steps:
        asked = make(asked, refusing, what, merchant)
        silent = make(silent, ignoring, what, merchant)
    assert asked.digest() == silent.digest()
    assert all(refusing.seen) and not any(ignoring.seen)


def test_nothing_is_hashed_unless_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    ignoring = Refusing()
    ignoring.needs_digest = False  # type: ignore[attr-defined]
    session = session_of(listeners=[ignoring])
    for name in ("fingerprint", "digest", "snapshot"):
        monkeypatch.setattr(World, name, None)
    make(session, ignoring, "list", 0)
    run_the_clock(session)


def test_a_turn_hashes_what_it_wrote_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    fingerprint = World.fingerprint

    def counting(market: World, m: int) -> bytes:
        asked.append(m)
        return fingerprint(market, m)

    monkeypatch.setattr(World, "fingerprint", counting)
    session = session_of(listeners=[Refusing()])
    make(session, Refusing(), "query_balance", 0)
    assert asked == [0, 1]
    for what, merchant in (("query_balance", 1), ("bump", 0), ("list", 1), ("list", 1)):
        make(session, Refusing(), what, merchant)
    assert asked == [0, 1, 1, 1]
