"""The bounded cache of what worlds of a process share."""

from __future__ import annotations

from merchantbench_gym.market.cache import SharedCache, clear_caches
from merchantbench_gym.market.catalog import load_catalog
from merchantbench_gym.scenario import load_scenario


def test_entries_are_built_once() -> None:
    cache = SharedCache(10)
    built: list[str] = []

    def ask(key: str, weight: int) -> str:
        def build() -> str:
            built.append(key)
            return key.upper()

        return str(cache.get(key, build, weight))

    assert [ask("a", 4), ask("b", 4), ask("a", 4)] == ["A", "B", "A"]
    assert built == ["a", "b"]
    # "b" was used longest ago and makes room.
    assert ask("c", 4) == "C"
    assert ask("a", 4) == "A"
    assert built == ["a", "b", "c"]
    assert ask("b", 4) == "B"
    assert built == ["a", "b", "c", "b"]


def test_the_entry_just_asked_for_is_kept_however_heavy() -> None:
    cache = SharedCache(10)
    first = cache.get("heavy", object, 1000)
    assert cache.get("heavy", object, 1000) is first
    cache.get("light", object, 1)
    assert cache.get("heavy", object, 1000) is not first


def test_clearing_builds_anew_and_equal() -> None:
    scenario = load_scenario()
    first = load_catalog(scenario, 3)
    clear_caches()
    second = load_catalog(scenario, 3)
    assert second is not first
    assert second.hash == first.hash
