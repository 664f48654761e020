"""Pixels of pictures: rectangles, stars and a font, all drawn with numpy alone."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Colour = tuple[int, int, int]

ROWS = 9
"""Rows of a glyph: seven over the line and two under it."""
CAPITAL = 7

# Cells of five columns and a gap. What is blank at the sides of a glyph is cut, except for figures, which
# share one width so that numbers do not dance.
FONT = """
A     B     C     D     E     F     G     H     I     J     K     L     M
.###. ####. .###. ####. ##### ##### .###. #...# ###.. ...## #...# #.... #...#
#...# #...# #...# #...# #.... #.... #...# #...# .#... ....# #..#. #.... ##.##
#...# #...# #.... #...# #.... #.... #.... #...# .#... ....# #.#.. #.... #.#.#
##### ####. #.... #...# ####. ####. #.### ##### .#... ....# ##... #.... #.#.#
#...# #...# #.... #...# #.... #.... #...# #...# .#... ....# #.#.. #.... #...#
#...# #...# #...# #...# #.... #.... #...# #...# .#... #...# #..#. #.... #...#
#...# ####. .###. ####. ##### #.... .###. #...# ###.. .###. #...# ##### #...#
..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....
..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....
N     O     P     Q     R     S     T     U     V     W     X     Y     Z
#...# .###. ####. .###. ####. .#### ##### #...# #...# #...# #...# #...# #####
##..# #...# #...# #...# #...# #.... ..#.. #...# #...# #...# #...# #...# ....#
##..# #...# #...# #...# #...# #.... ..#.. #...# #...# #...# .#.#. .#.#. ...#.
#.#.# #...# ####. #...# ####. .###. ..#.. #...# #...# #.#.# ..#.. ..#.. ..#..
#..## #...# #.... #.#.# #.#.. ....# ..#.. #...# .#.#. #.#.# .#.#. ..#.. .#...
#..## #...# #.... #..#. #..#. ....# ..#.. #...# .#.#. ##.## #...# ..#.. #....
#...# .###. #.... .##.# #...# ####. ..#.. .###. ..#.. #...# #...# ..#.. #####
..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....
..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....
a     b     c     d     e     f     g     h     i     j     k     l     m
..... #.... ..... ....# ..... ..##. ..... #.... #.... ...#. #.... #.... .....
..... #.... ..... ....# ..... .#... ..... #.... ..... ..... #.... #.... .....
.###. ####. .###. .#### .###. ####. .#### ####. #.... ...#. #..#. #.... ####.
....# #...# #.... #...# #...# .#... #...# #...# #.... ...#. #.#.. #.... #.#.#
.#### #...# #.... #...# ##### .#... #...# #...# #.... ...#. ##... #.... #.#.#
#...# #...# #.... #...# #.... .#... #...# #...# #.... ...#. #.#.. #.... #.#.#
.#### ####. .###. .#### .###. .#... .#### #...# #.... ...#. #..#. .#... #.#.#
..... ..... ..... ..... ..... ..... ....# ..... ..... #..#. ..... ..... .....
..... ..... ..... ..... ..... ..... .###. ..... ..... .##.. ..... ..... .....
n     o     p     q     r     s     t     u     v     w     x     y     z
..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....
..... ..... ..... ..... ..... ..... .#... ..... ..... ..... ..... ..... .....
####. .###. ####. .#### #.##. .###. ####. #...# #...# #...# #...# #...# #####
#...# #...# #...# #...# ##... #.... .#... #...# #...# #...# .#.#. #...# ...#.
#...# #...# #...# #...# #.... .###. .#... #...# #...# #.#.# ..#.. #...# ..#..
#...# #...# #...# #...# #.... ....# .#... #...# .#.#. #.#.# .#.#. #...# .#...
#...# .###. ####. .#### #.... ####. ..##. .#### ..#.. .#.#. #...# .#### #####
..... ..... #.... ....# ..... ..... ..... ..... ..... ..... ..... ....# .....
..... ..... #.... ....# ..... ..... ..... ..... ..... ..... ..... .###. .....
0     1     2     3     4     5     6     7     8     9     %     &     #
.###. ..#.. .###. .###. ...#. ##### ..##. ##### .###. .###. ##..# .##.. .#.#.
#...# .##.. #...# #...# ..##. #.... .#... ....# #...# #...# ##..# #..#. .#.#.
#...# ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...# ...#. #..#. #####
#...# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .#### ..#.. .##.. .#.#.
#...# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....# .#... #.#.# #####
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ...#. #..## #..#. .#.#.
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .##.. #..## .##.# .#.#.
..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....
..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....
.     ,     :     -     +     /     (     )     ×     ?     !     '     _
..... ..... ..... ..... ..... ....# .#... #.... ..... .###. #.... #.... .....
..... ..... ..... ..... ..#.. ....# #.... .#... ..... #...# #.... #.... .....
..... ..... #.... ..... ..#.. ...#. #.... .#... #...# ....# #.... ..... .....
..... ..... ..... ####. ##### ..#.. #.... .#... .#.#. ...#. #.... ..... .....
..... ..... ..... ..... ..#.. .#... #.... .#... ..#.. ..#.. #.... ..... .....
..... ..... #.... ..... ..#.. #.... #.... .#... .#.#. ..... ..... ..... .....
#.... .#... ..... ..... ..... #.... .#... #.... #...# ..#.. #.... ..... #####
..... #.... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....
..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....
"""

GAP = 1
BLANK: Mask = np.zeros((ROWS, 3), dtype=np.bool_)


def _glyphs() -> dict[str, Mask]:
    lines = FONT.strip().splitlines()
    glyphs = {}
    for top in range(0, len(lines), ROWS + 1):
        names, *rows = lines[top : top + ROWS + 1]
        art = np.array([list(row) for row in rows]) == "#"
        for left, name in enumerate(names):
            if name != " ":
                cell = art[:, left : left + 5]
                used = np.flatnonzero(cell.any(axis=0))
                glyphs[name] = cell if name.isdecimal() else cell[:, used[0] : used[-1] + 1]
    return glyphs


GLYPHS = _glyphs()


@lru_cache(maxsize=1024)
def mask(text: str, scale: int) -> Mask:
    """The pixels of a text; a character without a glyph is blank.

    Returns:
        Read-only array of shape (9 · scale, width).
    """
    parts = []
    for character in text:
        parts += [GLYPHS.get(character, BLANK), BLANK[:, :GAP]]
    small = np.concatenate(parts[:-1], axis=1) if parts else BLANK[:, :0]
    large = small.repeat(scale, axis=0).repeat(scale, axis=1)
    large.flags.writeable = False
    return large


def width(text: str, scale: int) -> int:
    """Width of a text in pixels."""
    return int(mask(text, scale).shape[1])


def write(image: Image, text: str, top: int, left: int, colour: Colour, scale: int = 2) -> None:
    """Draw a text with its upper left corner at a place; what lies outside the image is cut."""
    pixels = mask(text, scale)
    region = image[top : top + pixels.shape[0], left : left + pixels.shape[1]]
    region[pixels[: region.shape[0], : region.shape[1]]] = colour


def write_right(image: Image, text: str, top: int, right: int, colour: Colour, scale: int = 2) -> None:
    """Draw a text that ends before a column; what would lie left of the image is cut off at its right."""
    write(image, text, top, max(0, right - width(text, scale)), colour, scale)


def fill(image: Image, top: int, bottom: int, left: int, right: int, colour: Colour) -> None:
    """Fill the rectangle of rows ``top`` to ``bottom`` and columns ``left`` to ``right``, ends excluded."""
    image[top:bottom, left:right] = colour


@lru_cache(maxsize=8)
def star(size: int) -> Mask:
    """A five-pointed star.

    Returns:
        Read-only array of shape (size, size).
    """
    # A pixel is inside if it is on the inner side of at least four of the star's five lines.
    angles = np.pi / 2 + 2 * np.pi * np.arange(5) / 5
    y, x = np.mgrid[0:size, 0:size]
    middle, radius = (size - 1) / 2, size / 2 * 1.05
    right, up = x - middle, middle * 1.1 - y
    inner = radius * np.cos(2 * np.pi / 5)
    sides = [np.cos(a) * right + np.sin(a) * up <= inner for a in angles]
    pixels: Mask = np.sum(sides, axis=0) >= 4
    pixels.flags.writeable = False
    return pixels
