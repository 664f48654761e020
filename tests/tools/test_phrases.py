"""Phrases of names: what is cut, what is dropped, and which ones say the same."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import load_scenario
from merchantbench_gym.tools.phrases import GENERIC_WORDS, TRADE_WORDS, Phrases, phrases_of
from merchantbench_gym.tools.view import public_catalog


def texts(*names: str, times: int = 5) -> set[str]:
    """Phrases of names that so many products carry."""
    return set(Phrases([name for name in names for _ in range(times)], ["toys", "pet_garden"]).texts)


def index(phrases: Phrases, text: str) -> int:
    return phrases.texts.index(text)


def test_words_and_adjacent_pairs() -> None:
    assert texts("Oak Wall-Clock") == {"oak", "wall", "clock", "oak wall", "wall clock"}


def test_short_words_and_words_with_digits_break_pairs() -> None:
    assert texts("Oak XL Clock A4x Lamp") == {"oak", "clock", "lamp"}


def test_pairs_have_at_most_24_characters() -> None:
    assert texts("Abcdefghijkl Mnopqrstuvw") == {"abcdefghijkl mnopqrstuvw", "abcdefghijkl", "mnopqrstuvw"}
    assert texts("Abcdefghijkl Mnopqrstuvwx") == {"abcdefghijkl", "mnopqrstuvwx"}


def test_a_pair_does_not_reach_into_the_next_name() -> None:
    assert texts("Lamp", "Clock") == {"lamp", "clock"}


def test_trade_words_are_dropped_and_break_pairs() -> None:
    assert texts("Factory Direct Oak Wholesale Lamp") == {"oak", "lamp"}
    assert texts("厂家直销台灯") & {"厂家", "家直销", "直销台灯", "直销"} == set()
    assert "台灯" in texts("厂家直销台灯")


def test_phrases_of_nothing_but_attributes_are_dropped() -> None:
    assert texts("Premium Large Lamp") == {"lamp", "large lamp"}
    assert not texts("Premium Large")
    assert not texts("新款时尚") & {"新款", "时尚", "新款时尚"}


def test_category_names_are_dropped() -> None:
    assert texts("Toys Pet Garden Hose") == {
        "pet", "garden", "hose", "toys pet", "garden hose",
    }  # fmt: skip


def test_cjk_runs_give_pieces_of_two_to_four_characters() -> None:
    assert texts("护眼台灯LED") == {"护眼", "眼台", "台灯", "护眼台", "眼台灯", "护眼台灯", "led"}


def test_words_beside_a_cjk_run_are_not_adjacent() -> None:
    assert "oak lamp" not in texts("Oak 台灯 Lamp")


def test_text_is_normalised() -> None:
    assert texts("ＯＡＫ Café") == {"oak", "café", "oak café"}


def test_five_products_must_carry_a_phrase() -> None:
    assert texts("Lamp Lamp", times=4) == set()
    assert texts("Lamp Lamp", times=5) == {"lamp", "lamp lamp"}


def test_no_names_no_phrases() -> None:
    assert len(Phrases([], [])) == 0
    assert len(Phrases(["", "!?", "12"], [])) == 0


def test_word_lists_are_lower_case_and_disjoint() -> None:
    assert not set(TRADE_WORDS) & set(GENERIC_WORDS)
    assert all(word.isalpha() and word == word.lower() for word in (*TRADE_WORDS, *GENERIC_WORDS))


def test_near_duplicates() -> None:
    names = ["Rice Cooker"] * 8 + ["Rice Bowl"] * 1 + ["Steam Cooker"] * 16 + ["Steam Iron"] * 5
    names += ["Iron Steam"] * 5
    phrases = Phrases(names, [])

    def near(one: str, other: str) -> bool:
        answer = phrases.near_duplicates(index(phrases, one), index(phrases, other))
        assert answer == phrases.near_duplicates(index(phrases, other), index(phrases, one))
        return answer

    assert near("rice", "rice cooker")  # 8 of 9: over 0.8
    assert near("cooker", "rice cooker")  # contained, 8 of 24: over 0.3
    assert not near("rice", "cooker")  # the same overlap, but not contained
    assert not near("steam iron", "iron steam")  # other order, no common carrier
    assert not near("steam", "iron steam")  # contained, 5 of 26

    both = Phrases(["Steam Iron Iron Steam"] * 5 + ["Steam Iron"] * 60 + ["Iron Steam"] * 60, [])
    one, other = index(both, "steam iron"), index(both, "iron steam")
    assert both.near_duplicates(one, other)  # other order, 5 of 125


def test_containment_goes_by_whole_words() -> None:
    names = ["Pet Carpet Rug"] * 5 + ["Carpet Rug"] * 5
    phrases = Phrases(names, [])
    assert not phrases.near_duplicates(index(phrases, "pet"), index(phrases, "carpet rug"))


def test_pick_takes_the_best_and_skips_near_duplicates() -> None:
    phrases = Phrases(["Rice Cooker"] * 8 + ["Wall Clock"] * 5, [])
    ranked = [index(phrases, text) for text in ("rice", "rice cooker", "cooker", "clock", "wall")]
    assert [phrases.texts[i] for i in phrases.pick(ranked, 10)] == ["rice", "clock"]
    assert len(phrases.pick(ranked, 1)) == 1


def test_order_is_longer_first_then_alphabetical() -> None:
    phrases = Phrases(["Bed Cat Arm"] * 5, [])
    assert phrases.texts == ("bed cat", "cat arm", "arm", "bed", "cat")


@pytest.mark.parametrize("seed", [1, 2])
def test_phrases_of_a_catalog_agree_with_a_plain_search(seed: int) -> None:
    catalog = public_catalog(World(load_scenario("smoke"), seed).catalog)
    phrases = phrases_of(catalog)
    assert phrases_of(catalog) is phrases
    expected: dict[str, set[int]] = defaultdict(set)
    for product, name in enumerate(catalog.names):
        words = re.split(r"[^a-z0-9]+", name.lower())
        good = [w if re.fullmatch("[a-z]{3,24}", w) and w not in TRADE_WORDS else "" for w in words]
        for first, second in zip(good, [*good[1:], ""], strict=True):
            if first and first not in GENERIC_WORDS:
                expected[first].add(product)
            pair = f"{first} {second}"
            if first and second and len(pair) <= 24 and not {first, second} <= set(GENERIC_WORDS):
                expected[pair].add(product)
    for category in catalog.categories:
        expected.pop(category.replace("_", " "), None)
    kept = {text: sorted(products) for text, products in expected.items() if len(products) >= 5}
    assert {text: phrases.carriers(i).tolist() for i, text in enumerate(phrases.texts)} == kept
    assert not phrases.members.flags.writeable
