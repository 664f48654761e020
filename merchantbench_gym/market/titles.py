"""Product titles from the project's own vocabulary.

Titles never influence numbers. Each word number of the title channel has one fixed meaning, so
resizing one pool changes no other part of any title.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from merchantbench_gym.market.draws import (
    TITLE,
    draw,
    integer,
    integer_array,
    sm,
    sm_array,
    uniform,
    uniform_array,
)

__all__ = ["BRANDS", "MAX_LENGTH", "PROMOS", "VOCABULARY", "Words", "title", "titles"]

MAX_LENGTH: Final = 120
"""Longest title in characters; longer ones lose whole words at the end."""


class Words(NamedTuple):
    """Vocabulary of one category; every entry is one to three words."""

    attributes: tuple[str, ...]
    materials: tuple[str, ...]
    nouns: tuple[str, ...]
    specs: tuple[str, ...]


PROMOS: Final = ("Factory Direct", "Wholesale Deal", "Bulk Offer")
"""Promotional openings, shared by all categories."""

# Invented names, no existing trademarks.
BRANDS: Final = (
    "Avorlind",
    "Belquista",
    "Brelunto",
    "Cindarvo",
    "Dovrisel",
    "Drimsko",
    "Emberquil",
    "Fendrolo",
    "Galpermo",
    "Halvessan",
    "Ikvarne",
    "Jorvettin",
    "Kolvestra",
    "Krastono",
    "Lorqueda",
    "Mirquen",
    "Nuvolent",
    "Obrantil",
    "Ondrivel",
    "Pellivox",
    "Quintarelk",
    "Ruspeva",
    "Sarnovik",
    "Tesmarro",
    "Tramolde",
    "Ulverato",
    "Vostrine",
    "Welpazo",
    "Yarbelo",
    "Zuntarel",
)
"""Brand names, shared by all categories."""

VOCABULARY: Final = (
    Words(  # office
        ("Ergonomic", "Slim", "Refillable", "Non-Slip", "Executive"),
        ("Recycled Paper", "Brushed Aluminum", "Bamboo", "Matte Plastic"),
        (
            "Desk Organizer",
            "Gel Pen",
            "Notebook",
            "Stapler",
            "Document Tray",
            "Whiteboard Marker",
            "Monitor Riser",
            "File Folder",
        ),
        ("A4", "A5", "12-Pack", "Set of 6"),
    ),
    Words(  # womenswear
        ("Elegant", "Casual", "High-Waist", "Floral", "Oversized"),
        ("Cotton", "Linen Blend", "Satin", "Ribbed Knit"),
        (
            "Midi Dress",
            "Blouse",
            "Cardigan",
            "Pleated Skirt",
            "Wide-Leg Trousers",
            "Jumpsuit",
            "Wrap Top",
            "Trench Coat",
        ),
        ("Size S", "Size M", "Size L", "Size XL"),
    ),
    Words(  # pet_garden
        ("Weatherproof", "Chew-Resistant", "Foldable", "Self-Watering", "Pet-Safe"),
        ("Terracotta", "Nylon Webbing", "Cedar Wood", "Natural Rubber"),
        (
            "Dog Leash",
            "Cat Tree",
            "Plant Pot",
            "Bird Feeder",
            "Pruning Shears",
            "Pet Bed",
            "Garden Hose",
            "Water Bowl",
        ),
        ("Small", "Large", "2-Pack", "10 m"),
    ),
    Words(  # appliances
        ("Energy-Saving", "Quiet", "Compact", "Digital", "Cordless"),
        ("Stainless Steel", "Tempered Glass", "Ceramic Coated", "Cast Aluminum"),
        (
            "Electric Kettle",
            "Air Fryer",
            "Hand Blender",
            "Rice Cooker",
            "Toaster",
            "Desk Fan",
            "Steam Iron",
            "Coffee Grinder",
        ),
        ("800 W", "1500 W", "2 L", "5 L"),
    ),
    Words(  # home_decor
        ("Minimalist", "Vintage", "Handmade", "Rustic", "Geometric"),
        ("Rattan", "Velvet", "Frosted Glass", "Solid Oak"),
        (
            "Wall Clock",
            "Photo Frame",
            "Table Lamp",
            "Throw Pillow",
            "Flower Vase",
            "Wall Mirror",
            "Candle Holder",
            "Area Rug",
        ),
        ("30 cm", "60 cm", "Set of 2", "Set of 3"),
    ),
    Words(  # home_goods
        ("Stackable", "Space-Saving", "Airtight", "Heat-Resistant", "Durable"),
        ("Silicone", "Acacia Wood", "Clear Acrylic", "Woven Fabric"),
        (
            "Storage Box",
            "Laundry Basket",
            "Bath Towel",
            "Spice Rack",
            "Shower Curtain",
            "Food Container",
            "Clothes Hanger",
            "Cutting Board",
        ),
        ("4-Pack", "Set of 8", "20 L", "40x60 cm"),
    ),
    Words(  # cleaning
        ("Streak-Free", "Extendable", "Machine-Washable", "Heavy-Duty", "Reusable"),
        ("Microfiber", "Coconut Fiber", "Cellulose", "Soft Bristle"),
        (
            "Mop Set",
            "Scrub Brush",
            "Window Squeegee",
            "Dust Cloth",
            "Toilet Brush",
            "Cleaning Gloves",
            "Kitchen Sponge",
            "Lint Roller",
        ),
        ("3-Pack", "6-Pack", "24-Pack", "120 cm"),
    ),
    Words(  # toys
        ("Educational", "Magnetic", "Interactive", "Colorful", "Travel-Size"),
        ("Beech Wood", "Soft Plush", "Foam", "Rounded Plastic"),
        (
            "Building Blocks",
            "Jigsaw Puzzle",
            "Toy Train",
            "Stuffed Bear",
            "Board Game",
            "Spinning Top",
            "Play Kitchen",
            "Kite",
        ),
        ("48 Pieces", "100 Pieces", "Ages 3-6", "Ages 6-12"),
    ),
    Words(  # bags
        ("Water-Resistant", "Lightweight", "Expandable", "Quilted", "Anti-Theft"),
        ("Canvas", "Vegan Leather", "Ripstop Nylon", "Felt"),
        (
            "Backpack",
            "Tote Bag",
            "Crossbody Bag",
            "Travel Duffel",
            "Laptop Sleeve",
            "Card Wallet",
            "Belt Pouch",
            "Cosmetic Case",
        ),
        ("15 L", "30 L", "13 Inch", "15 Inch"),
    ),
    Words(  # sports
        ("Adjustable", "Breathable", "Anti-Shock", "Pro-Grade", "Quick-Dry"),
        ("Carbon Fiber", "Neoprene", "Natural Latex", "Mesh"),
        (
            "Yoga Mat",
            "Jump Rope",
            "Resistance Band",
            "Dumbbell",
            "Trekking Pole",
            "Knee Brace",
            "Camping Tent",
            "Swim Goggles",
        ),
        ("5 kg", "10 kg", "6 mm", "Pair"),
    ),
)
"""Words of the ten categories, in category order."""

_POOLS: Final = (
    (PROMOS,) * len(VOCABULARY),
    (BRANDS,) * len(VOCABULARY),
    tuple(words.attributes for words in VOCABULARY),
    tuple(words.materials for words in VOCABULARY),
    tuple(words.nouns for words in VOCABULARY),
    tuple(words.specs for words in VOCABULARY),
)
# Of each part: word number and probability of the gate (None: always there), word number of the pick.
_RULES: Final[tuple[tuple[int | None, float, int], ...]] = (
    (0, 0.22, 1),
    (None, 1.0, 2),
    (3, 0.62, 4),
    (5, 0.48, 6),
    (None, 1.0, 7),
    (8, 0.58, 9),
)


def title(seed: int, product: int, category: int) -> str:
    """Return the title of one product.

    Args:
        seed: Catalog seed.
        product: Product index.
        category: Category index of the product, 0 to 9.
    """
    node = draw(seed, TITLE, product)
    parts = []
    for pools, (gate, probability, pick) in zip(_POOLS, _RULES, strict=True):
        if gate is None or uniform(sm(node, gate)) < probability:
            pool = pools[category]
            parts.append(pool[integer(uniform(sm(node, pick)), 0, len(pool) - 1)])
    return _cut(" ".join(parts))


def titles(seed: int, categories: Any) -> list[str]:
    """Return the titles of products 0, 1, ..., built in arrays.

    Args:
        seed: Catalog seed.
        categories: Category index per product, shape (products,).
    """
    category = np.asarray(categories, dtype=np.int64)
    nodes = sm_array(draw(seed, TITLE), np.arange(len(category)))
    columns = []
    for pools, (gate, probability, pick) in zip(_POOLS, _RULES, strict=True):
        # Entries end in a blank, so that parts left out need no case of their own.
        entries = np.array([[entry + " " for entry in pool] for pool in pools], dtype=object)
        picks = integer_array(uniform_array(sm_array(nodes, pick)), 0, entries.shape[1] - 1)
        column = entries[category, picks]
        if gate is not None:
            column[uniform_array(sm_array(nodes, gate)) >= probability] = ""
        columns.append(column.tolist())
    return [_cut("".join(parts)[:-1]) for parts in zip(*columns, strict=True)]


def _cut(text: str) -> str:
    """Cut `text` at a word boundary to at most `MAX_LENGTH` characters."""
    if len(text) <= MAX_LENGTH:
        return text
    return text[: MAX_LENGTH + 1].rpartition(" ")[0]
