"""Phrases of product names: the search terms that market tools rank.

A phrase is a word of a name, two adjacent words, or a short piece of CJK text. Words of the trade and mere
attributes do not count. Phrases depend on the names of the catalog alone, so they are cut once per catalog.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from merchantbench_gym.tools.search import runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from merchantbench_gym.tools.view import PublicCatalog

IntArray = npt.NDArray[np.int64]

MIN_LETTERS = 3
MAX_CHARACTERS = 24
CJK_SIZES = (2, 3, 4)
MIN_CARRIERS = 5

MAX_PAIRS = 100_000  # of phrases compared, kept

ALIKE = 0.8
"""Overlap from which two phrases say the same of almost the same products."""
ALIKE_WITHIN = 0.3
"""Overlap from which a phrase adds nothing to one that contains it."""


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


TRADE_WORDS = _listed(
    """
    bargain bestseller bestselling bulk cheap clearance closeout coupon deal deals direct discount
    discounted dropship dropshipper dropshipping export exporter factory import importer manufacturer
    manufacturers moq odm oem offer offers oversea overseas promo promos promotion promotional
    promotions resale resell reseller retail retailer sale sales seller shipping stocklot supplier
    suppliers supply vendor warehouse wholesale wholesaler wholesalers
    """
)
"""Words about the trade rather than the product; a phrase with one of them is none."""

TRADE_CJK = _listed(
    """
    一件代发 代发 批发 厂家 工厂 直销 直供 货源 促销 特价 清仓 甩卖 包邮 爆款 热卖 热销 跨境
    外贸 电商 现货 定制 代理 优惠 折扣 团购 秒杀 批量 源头
    """
)
"""The same for CJK text."""

GENERIC_WORDS = _listed(
    """
    adjustable age ages and anti assorted basic beige best big black blue brown classic color colored
    colorful colors colour colourful compact convenient creative custom cute durable extra fashion
    fashionable favorite foldable folding for free fresh full gold gray green grey heavy high home hot
    inch inches item items kit large latest light lightweight long low luxury medium mini modern multi
    multifunctional multipurpose new newest nice non one orange original pack packs pair pairs pcs
    perfect piece pieces pink popular portable practical premium pro professional proof purple quality
    quick red resistant reusable round safe set sets short silver simple single size sizes slim small
    smart soft solid standard strong style stylish super thick thin three top trendy two type ultra
    universal upgraded use useful vintage white wide with yellow
    """
)
"""Attributes that fit anything; a phrase of nothing else is none."""

GENERIC_CJK = _listed(
    """
    新款 新品 新型 时尚 简约 创意 家用 便携 多功能 大号 中号 小号 加厚 加大 加长 迷你 高档
    高级 优质 精品 经典 通用 可爱 实用 耐用 轻便 折叠 可调节 套装 单个 男女 男士 女士 儿童
    黑色 白色 红色 蓝色 绿色 黄色 灰色 粉色 彩色 规格 尺寸 颜色
    """
)
"""The same for CJK text."""

_ASCII_WORDS = re.compile(r"[a-z0-9]+")
_ONLY_GENERIC_CJK = re.compile(f"(?:{'|'.join(GENERIC_CJK)})+")


class Inside(NamedTuple):
    """Phrases of one category.

    Attributes:
        phrases: Indices of the phrases, ascending.
        members: Products of the category that carry them.
        place: Place among ``phrases`` of the phrase of each member.
        ratings: Shown rating of each member in hundredths, which makes sums of them exact.
        alphabetical: Place of each phrase in alphabetical order.
    """

    phrases: IntArray
    members: IntArray
    place: IntArray
    ratings: IntArray
    alphabetical: IntArray


class Phrases:
    """The phrases of a catalog with the products that carry them.

    Attributes:
        texts: Phrases, longer ones first, then alphabetical.
        members: Products that carry the phrases: those of the first one ascending, then those of the next,
            shape (k,).
        group: Index of the phrase of each member, shape (k,).
        alphabetical: Place of each phrase in alphabetical order, shape (phrases,).
    """

    def __init__(self, names: Sequence[str], categories: Iterable[str]) -> None:
        """Cut names into phrases.

        Args:
            names: Product names by index.
            categories: Category names, which are no phrases.
        """
        carriers = _carriers(names)
        for category in categories:
            carriers.pop(" ".join(run for run, _ in runs(category)), None)
        self.texts: tuple[str, ...] = tuple(sorted(carriers, key=lambda text: (-len(text), text)))
        sizes = [len(carriers[text]) for text in self.texts]
        empty = np.empty(0, np.int64)
        self.members: IntArray = np.concatenate([empty, *(carriers[text] for text in self.texts)])
        self.group: IntArray = np.repeat(np.arange(len(self.texts)), sizes)
        self._bounds: list[int] = np.cumsum([0, *sizes]).tolist()
        by_text = sorted(range(len(self.texts)), key=self.texts.__getitem__)
        self.alphabetical: IntArray = np.argsort(np.array(by_text, np.int64))
        for array in (self.members, self.group, self.alphabetical):
            array.flags.writeable = False
        self._inside: dict[int, Inside] = {}
        self._sets: dict[int, frozenset[int]] = {}
        self._near: dict[tuple[int, int], bool] = {}

    def __len__(self) -> int:
        """Number of phrases."""
        return len(self.texts)

    def carriers(self, phrase: int) -> IntArray:
        """Products that carry a phrase, ascending."""
        return self.members[self._bounds[phrase] : self._bounds[phrase + 1]]

    def inside(self, category: int, catalog: PublicCatalog) -> Inside:
        """The phrases that products of one category carry.

        Args:
            category: The category.
            catalog: The catalog of these phrases.
        """
        found = self._inside.get(category)
        if found is None:
            here = catalog.category[self.members] == category
            own, place = np.unique(self.group[here], return_inverse=True)
            members = self.members[here]
            ratings = np.rint(catalog.historical_rating[members] * 100).astype(np.int64)
            found = self._inside[category] = Inside(own, members, place, ratings, self.alphabetical[own])
        return found

    def _carrier_set(self, phrase: int) -> frozenset[int]:
        found = self._sets.get(phrase)
        if found is None:
            found = self._sets[phrase] = frozenset(self.carriers(phrase).tolist())
        return found

    def near_duplicates(self, one: int, other: int) -> bool:
        """Whether two phrases are about the same products under almost the same words."""
        a, b = self._carrier_set(one), self._carrier_set(other)
        common = len(a & b)
        overlap = common / (len(a) + len(b) - common)
        if overlap >= ALIKE:
            return True
        first, second = self.texts[one], self.texts[other]
        if _contains(first, second) or _contains(second, first):
            return overlap >= ALIKE_WITHIN
        return overlap > 0 and sorted(first.split()) == sorted(second.split())

    def pick(self, ranked: Iterable[int], count: int) -> list[int]:
        """The first phrases of a ranking, without near-duplicates of one taken before.

        Args:
            ranked: Phrase indices, best first.
            count: Most phrases to take.
        """
        taken: list[int] = []
        for phrase in ranked:
            if len(taken) == count:
                break
            if not any(self._is_near(phrase, before) for before in taken):
                taken.append(phrase)
        return taken

    def _is_near(self, one: int, other: int) -> bool:
        """`near_duplicates`, found out once for phrases that rank high day after day."""
        near = self._near.get((one, other))
        if near is None:
            if len(self._near) >= MAX_PAIRS:
                self._near.clear()
            near = self._near[one, other] = self.near_duplicates(one, other)
        return near


def phrases_of(catalog: PublicCatalog) -> Phrases:
    """The phrases of a catalog, cut at the first call and kept with it."""
    kept = catalog.kept.get("phrases")
    if kept is None:
        kept = catalog.kept.setdefault("phrases", Phrases(catalog.names, catalog.categories))
    assert isinstance(kept, Phrases)
    return kept


def _contains(whole: str, part: str) -> bool:
    """Whether a phrase contains another: as whole words, or anywhere in CJK text."""
    return part in whole if not part.isascii() else f" {part} " in f" {whole} "


def _carriers(names: Sequence[str]) -> dict[str, IntArray]:
    """Products by phrase, ascending, for phrases with enough of them."""
    tokens: list[str] = []
    counts: list[int] = []
    pieces: dict[str, list[int]] = {}
    for product, name in enumerate(names):
        before = len(tokens)
        if name.isascii():
            tokens += _ASCII_WORDS.findall(name.lower())
        else:
            for run, cjk in runs(name):
                # An empty word stands for a CJK run, so that the words around it are not adjacent.
                tokens.append("" if cjk else run)
                for piece in _pieces(run) if cjk else ():
                    found = pieces.setdefault(piece, [])
                    if not found or found[-1] != product:
                        found.append(product)
        counts.append(len(tokens) - before)
    carriers = _word_carriers(tokens, counts)
    carriers.update(
        (piece, np.array(products, np.int64))
        for piece, products in pieces.items()
        if len(products) >= MIN_CARRIERS and _telling(piece)
    )
    return carriers


def _pieces(run: str) -> Iterable[str]:
    return (run[i : i + size] for size in CJK_SIZES for i in range(len(run) - size + 1))


def _telling(piece: str) -> bool:
    """Whether a piece of CJK text says something about a product."""
    return not any(word in piece for word in TRADE_CJK) and not _ONLY_GENERIC_CJK.fullmatch(piece)


def _word_carriers(tokens: Sequence[str], counts: Sequence[int]) -> dict[str, IntArray]:
    """Products by word and pair of words; all tokens of all names in a row, `counts` of each name."""
    vocabulary = sorted(set(tokens))
    number = {word: i for i, word in enumerate(vocabulary)}
    words = np.fromiter(map(number.__getitem__, tokens), np.int64, len(tokens))
    products = np.repeat(np.arange(len(counts)), counts)
    usable = np.array([_usable(word) for word in vocabulary], np.bool_)
    generic = np.array([word in GENERIC_WORDS for word in vocabulary], np.bool_)
    if not len(tokens):
        return {}
    single = usable[words] & ~generic[words]
    carriers = {vocabulary[word]: carried for word, carried in _grouped(words[single], products[single])}
    left, right = words[:-1], words[1:]
    pair = usable[left] & usable[right] & (products[:-1] == products[1:]) & ~(generic[left] & generic[right])
    codes = left[pair] * len(vocabulary) + right[pair]
    for code, carried in _grouped(codes, products[:-1][pair]):
        text = " ".join(vocabulary[word] for word in divmod(code, len(vocabulary)))
        if len(text) <= MAX_CHARACTERS:
            carriers[text] = carried
    return carriers


def _usable(word: str) -> bool:
    return MIN_LETTERS <= len(word) <= MAX_CHARACTERS and word.isalpha() and word not in TRADE_WORDS


def _grouped(codes: IntArray, products: IntArray) -> list[tuple[int, IntArray]]:
    """Distinct products by code, ascending, for codes with enough of them."""
    if not len(codes):
        return []
    size = int(products.max()) + 1
    values, places = np.unique(codes, return_inverse=True)
    group, product = np.divmod(np.unique(places * size + products), size)
    bounds = np.searchsorted(group, np.arange(len(values) + 1))
    enough = np.flatnonzero(np.diff(bounds) >= MIN_CARRIERS)
    return [(int(values[i]), product[bounds[i] : bounds[i + 1]]) for i in enough]
