"""Titles: vocabulary, composition, both forms."""

from __future__ import annotations

import re
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.market import titles as module
from merchantbench_gym.market.draws import draw, uniform
from merchantbench_gym.market.titles import BRANDS, MAX_LENGTH, PROMOS, VOCABULARY, title, titles


def test_pool_sizes() -> None:
    assert (len(PROMOS), len(BRANDS), len(VOCABULARY)) == (3, 30, 10)
    for words in VOCABULARY:
        assert [len(pool) for pool in words] == [5, 4, 8, 4]
    for pool in (PROMOS, BRANDS, *chain.from_iterable(VOCABULARY)):
        assert len(set(pool)) == len(pool)


def test_pool_entries_are_one_to_three_plain_words() -> None:
    for entry in chain(PROMOS, BRANDS, *chain.from_iterable(VOCABULARY)):
        assert re.fullmatch(r"[A-Za-z0-9-]+( [A-Za-z0-9-]+){0,2}", entry), entry


def test_nouns_are_title_cased_and_belong_to_one_category() -> None:
    nouns = [noun for words in VOCABULARY for noun in words.nouns]
    assert len(set(nouns)) == len(nouns)
    assert all(noun == noun.title() for noun in nouns)


@given(st.integers(0, 2**64 - 1), st.integers(1, 40))
def test_array_and_scalar_form_agree(seed: int, count: int) -> None:
    categories = np.arange(count) % 10
    assert titles(seed, categories) == [title(seed, i, i % 10) for i in range(count)]


def test_no_products() -> None:
    assert titles(42, np.array([], dtype=np.int64)) == []


@given(st.integers(0, 2**63), st.integers(0, 100_000), st.integers(0, 9))
def test_every_part_follows_its_words(seed: int, product: int, category: int) -> None:
    def u(word: int) -> float:
        return uniform(draw(seed, 3, product, word))

    words = VOCABULARY[category]
    parts = []
    if u(0) < 0.22:
        parts.append(PROMOS[int(u(1) * 3)])
    parts.append(BRANDS[int(u(2) * 30)])
    if u(3) < 0.62:
        parts.append(words.attributes[int(u(4) * 5)])
    if u(5) < 0.48:
        parts.append(words.materials[int(u(6) * 4)])
    parts.append(words.nouns[int(u(7) * 8)])
    if u(8) < 0.58:
        parts.append(words.specs[int(u(9) * 4)])
    assert title(seed, product, category) == " ".join(parts)


def test_resizing_a_pool_shifts_no_other_part(monkeypatch: pytest.MonkeyPatch) -> None:
    before = titles(42, np.zeros(300, dtype=np.int64))
    pools = list(module._POOLS)
    pools[0] = (PROMOS[:1],) * len(VOCABULARY)
    monkeypatch.setattr(module, "_POOLS", tuple(pools))
    after = titles(42, np.zeros(300, dtype=np.int64))

    def rest(text: str) -> str:
        return next((text[len(promo) + 1 :] for promo in PROMOS if text.startswith(promo)), text)

    assert before != after
    assert [rest(text) for text in before] == [rest(text) for text in after]


def test_long_titles_are_cut_at_a_word_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    for length in range(30, 70):
        word = "x" * length
        monkeypatch.setattr(module, "_POOLS", (((word,),) * 10,) * 6)
        for text in titles(7, np.zeros(60, dtype=np.int64)):
            assert len(text) <= MAX_LENGTH
            assert set(text.split(" ")) == {word}
        assert title(7, 0, 0) == titles(7, [0])[0]
    exact = " ".join(["y" * 59, "z" * 60])
    assert module._cut(exact + " w") == exact


def test_frequencies_of_the_parts() -> None:
    texts = titles(1, np.arange(10_000) % 10)
    with_promo = sum(text.startswith(PROMOS) for text in texts)
    assert abs(with_promo - 2200) < 5 * (10_000 * 0.22 * 0.78) ** 0.5
    assert all(any(brand in text for brand in BRANDS) for text in texts[:300])
