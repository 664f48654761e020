"""What a tool handler is given besides its arguments.

None of these objects is changed once made. They are not frozen, because making a frozen one costs several
times as much and some are made every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from merchantbench_gym.scenario import Scenario

#: Risk name -> indices of shelf products that carry it (see `tools.observation.risk_sets`).
RiskSets = Mapping[str, frozenset[int]]


@dataclass(slots=True)
class WindowInfo:
    """Window and turn counters as they stand when a turn begins; constant during the turn.

    Attributes:
        index: Window number from 0.
        from_t: First hour that ran since the previous window.
        to_t: Last such hour: the hour the window opened, or the final hour of a finished merchant.
        turn: Number of the running turn, or of the next one outside a turn, from 1.
        turns_limit: Turns a window allows.
        turns_left: Turns not yet charged, the running one included; 0 unless `state` is `open`.
        state: `open`, `waiting`, `finished` or `closed`.
    """

    index: int
    from_t: int
    to_t: int
    turn: int
    turns_limit: int
    turns_left: int
    state: str


@dataclass(slots=True)
class WindowBook:
    """What one merchant's window remembers of its opening and of the closing before it.

    Attributes:
        last_t: Hour of the previous window; -1 before the first.
        open_t: Hour at which the current window opened; for the final observation the merchant's final hour.
        shelf: Product indices on the shelf when the window opened, ascending.
        risks_at_close: Risk sets when the previous window closed; all empty before the first.
        risks_at_open: Risk sets when the current window opened.
        net_assets_at_close: Cents at the closing of the previous window; for window 0 those at the start.
    """

    last_t: int
    open_t: int
    shelf: tuple[int, ...]
    risks_at_close: RiskSets
    risks_at_open: RiskSets
    net_assets_at_close: int


@dataclass(slots=True)
class Context:
    """First argument of every handler.

    Attributes:
        view: The merchant's view of the world (`tools.view.MerchantView`); WRITE tools change the shelf
            through it.
        scenario: The scenario of the run.
        language: Language of brief, observation text and report.
        merchant: Index of the merchant who calls, for tools that keep state per merchant. Never shown.
        window: Window and turn counters.
        book: Bookkeeping of the window.
        observation: Returns the observation packet as of now.
        text: Returns the rendered observation as of now.
        schemas: Returns fresh schemas of the tools this session grants, in index order.
    """

    view: Any
    scenario: Scenario
    language: str
    merchant: int
    window: WindowInfo
    book: WindowBook
    observation: Callable[[], dict[str, Any]]
    text: Callable[[], str]
    schemas: Callable[[], list[dict[str, Any]]]
