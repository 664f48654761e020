"""What is kept between readings shows in none of them: every reading equals that of a world made afresh."""

from __future__ import annotations

import random
from typing import Any

import pytest
from harsh import HARSH
from hypothesis import given, settings
from hypothesis import strategies as st
from leaks import GRID

from merchantbench_gym.market import clear_caches
from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import load_scenario
from merchantbench_gym.session import Session, Turn
from merchantbench_gym.tools.calls import normalise

CALLS = [(name, arguments) for name, several in GRID.items() for arguments in several[:5]]


class Broken(Exception):
    pass


class Player:
    """A session that is written at random, and read in full beside a session that knows nothing yet."""

    def __init__(self, seed: int, merchants: int, **overrides: Any) -> None:
        overrides = {**HARSH, "turns": {"max_turns_per_window": 1000}, "tools": {"denied": []}, **overrides}
        self.scenario = load_scenario("default", overrides)
        self.session = Session(World(self.scenario, seed, merchants))
        self.session.open()
        self.rng = random.Random(seed)

    def submit(self, session: Session, merchant: int, calls: list[tuple[str, Any]]) -> Any:
        action = [{"name": name, "arguments": arguments} for name, arguments in calls]
        return session.submit(merchant, Turn(batch=normalise(action)))

    def deciding(self, session: Session) -> list[int]:
        return [m for m in range(session.world.merchants) if session.phase(m) == "deciding"]

    def fresh(self) -> Session:
        session = self.session
        clear_caches()
        twin = Session(World(self.scenario, session.world.seed, session.world.merchants))
        twin.restore(session.snapshot())
        return twin

    def compare(self) -> None:
        """Read everything, twice, in both sessions."""
        twin = self.fresh()
        for m in range(self.session.world.merchants):
            for again in range(2):
                assert self.session.observe(m) == twin.observe(m)
                assert self.session.text(m) == twin.text(m)
                if m in self.deciding(twin):
                    for start in range(again, len(CALLS), 60):
                        calls = CALLS[start : start + 60]
                        mine, other = (self.submit(s, m, calls).answers for s in (self.session, twin))
                        assert mine == other
        assert self.session.digest() == twin.digest()

    # --- moves ---

    def write(self, session: Session) -> None:
        """One turn of a careless merchant; reading calls stand between the writing ones."""
        rng = self.rng
        for m in self.deciding(session):
            price = session.world.products().price.tolist()
            items = [
                {"product_id": f"P{i:05d}", "sale_price": price[i] * rng.choice((0.9, 1.3, 1.8)) / 100}
                for i in rng.sample(range(len(price)), 5)
            ]
            shelf = session.world.shelf_products(m)
            gone = [{"product_id": f"P{i:05d}"} for i in rng.sample(shelf, min(2, len(shelf)))] or items[:1]
            gone = [{"product_id": item["product_id"]} for item in gone]
            reads = [("query_my_listings", {}), ("get_observation", {}), ("get_store_snapshot", {})]
            calls = [("list_product", {"items": items}), *reads, ("delist_product", {"items": gone}), *reads]
            self.submit(session, m, calls)

    def fail(self, session: Session) -> None:
        """A turn that is undone, because its listener fails."""

        def listener(record: Any) -> None:
            raise Broken

        session.add_listener(listener)
        with pytest.raises(Broken):
            self.write(session)
        session.listeners.remove(listener)

    def branch(self, session: Session) -> None:
        """A clone that goes on by itself."""
        twin = session.clone()
        self.write(twin)
        self.end(twin)

    def back(self, session: Session) -> None:
        """Go on, return to where it was."""
        data = session.snapshot()
        self.write(session)
        self.end(session)
        session.restore(data)

    def end(self, session: Session) -> None:
        for m in self.deciding(session):
            self.submit(session, m, [("end_of_step", {})])
        if not session.finished:
            session.advance()


MOVES = st.lists(st.sampled_from(["write", "write", "fail", "branch", "back", "end", "end"]), max_size=14)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 99), MOVES, st.booleans(), st.sampled_from(["en", "zh"]))
def test_kept_and_fresh_readings_agree(seed: int, moves: list[str], fees: bool, language: str) -> None:
    player = Player(seed, 1, fees={"enabled": fees}, brief={"language": language})
    player.write(player.session)
    for move in [*moves, "end"]:
        if player.deciding(player.session):
            getattr(player, move)(player.session)
            player.compare()


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 99), MOVES)
def test_kept_and_fresh_readings_agree_for_several_merchants(seed: int, moves: list[str]) -> None:
    player = Player(seed, 3)
    player.write(player.session)
    for move in [*moves, "end"]:
        if player.deciding(player.session):
            getattr(player, move)(player.session)
            player.compare()
