from __future__ import annotations

import string

import numpy as np
import pytest

from merchantbench_gym.rendering_pixels import (
    CAPITAL,
    GLYPHS,
    ROWS,
    Image,
    mask,
    star,
    width,
    write,
    write_right,
)

RED = (200, 0, 0)


def blank() -> Image:
    return np.zeros((40, 60, 3), dtype=np.uint8)


def test_every_character_in_use_has_a_glyph_of_its_own() -> None:
    needed = string.ascii_letters + string.digits + ".,:-+/()×%"
    assert set(needed) <= set(GLYPHS)
    assert all(glyph.shape[0] == ROWS and glyph.any() for glyph in GLYPHS.values())
    for alphabet in (string.ascii_letters, string.digits + ".,:-+/()%"):
        pictures = {(GLYPHS[character].shape[1], GLYPHS[character].tobytes()) for character in alphabet}
        assert len(pictures) == len(alphabet)


def test_capitals_and_figures_stand_on_the_line() -> None:
    for character in string.ascii_uppercase + string.digits:
        used = np.flatnonzero(GLYPHS[character].any(axis=1))
        assert (used[0], used[-1]) == (0, CAPITAL - 1)


def test_figures_share_one_width() -> None:
    assert len({width(f"{figure}", 2) for figure in string.digits}) == 1
    assert width("i", 1) < width("m", 1)


def test_texts_grow_with_the_scale() -> None:
    small, large = mask("Day 1", 1), mask("Day 1", 3)
    np.testing.assert_array_equal(large[::3, ::3], small)
    assert large.shape == (3 * small.shape[0], 3 * small.shape[1])
    assert width("", 2) == 0


def test_unknown_characters_are_blank() -> None:
    np.testing.assert_array_equal(mask("a ☃", 1), mask("a  ", 1))


def test_texts_are_cut_at_the_edges() -> None:
    image = blank()
    write(image, "W" * 50, 30, 50, RED)
    assert image[30:, 50:].any()
    assert not image[:30].any()
    assert not image[:, :50].any()
    write(image, "W", 100, 100, RED)


def test_texts_end_where_they_should() -> None:
    image = blank()
    write_right(image, "W", 0, 40, RED)
    assert np.flatnonzero(image.any(axis=(0, 2)))[-1] == 39
    image = blank()
    write_right(image, "W" * 50, 0, 40, RED)
    assert image[:, 0].any()


@pytest.mark.parametrize("size", [12, 26])
def test_a_star_is_even_and_has_five_points(size: int) -> None:
    shape = star(size)
    np.testing.assert_array_equal(shape, shape[:, ::-1])
    widths = shape.sum(axis=1)
    used = np.flatnonzero(widths)
    assert widths[used[0]] <= 2
    assert widths.max() > 0.8 * size
    # The two lower points have a gap between them.
    foot = np.flatnonzero(shape[used[-1]])
    assert (np.diff(foot) > 1).sum() == 1
