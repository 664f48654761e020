"""Double-entry accounts of one merchant: credits, debits, fines and closure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from merchantbench_gym.market.rules import FINE_KINDS, Rules

BALANCE, DEPOSIT, IN_TRANSIT, RECEIVABLE, CAPITAL, SALES, COGS, REFUNDS, FINES, FEES = range(10)
ACCOUNTS: tuple[str, ...] = (
    "balance",
    "deposit",
    "in_transit",
    "receivable",
    "capital",
    "sales",
    "cogs",
    "refunds",
    "fines",
    "fees",
)


class Terms(NamedTuple):
    """Signed parts of the change of net assets since the start, in cents."""

    gross: int
    refunds: int
    fines: int
    fees: int
    other: int


class Accounts(NamedTuple):
    """The ten accounts of a merchant in cents; the first four are its own and never negative."""

    balance: int
    deposit: int
    in_transit: int
    receivable: int
    capital: int
    sales: int
    cogs: int
    refunds: int
    fines: int
    fees: int

    @property
    def net_assets(self) -> int:
        """Sum of the merchant's own accounts in cents."""
        return self.balance + self.deposit + self.in_transit + self.receivable

    def terms(self, initial: int) -> Terms:
        """Signed parts of the change of net assets since a start with ``initial`` cents."""
        return terms_of(self, initial)


def terms_of(accounts: Sequence[int], initial: int) -> Terms:
    """`Accounts.terms` of the ten balances in the order of `ACCOUNTS`."""
    a = accounts
    return Terms(-a[SALES] - a[COGS], -a[REFUNDS], -a[FINES], -a[FEES], -a[CAPITAL] - initial)


class Posting(NamedTuple):
    """One movement of cents between two accounts of a merchant."""

    t: int
    merchant: int
    source: str
    target: str
    cents: int
    reason: str
    order: int | None


class Ledger:
    """Accounts of one merchant; every change is a posting, so the ten accounts always sum to zero.

    Attributes:
        accounts: The ten balances in cents, in the order of `ACCOUNTS`.
        journal: All postings, or None when they are not kept.
        charged, collected: Fines per kind in cents, nominal and posted, in the order of `FINE_KINDS`.
        short: Collected cents of debits that could not be posted in full, by (order number, reason).
    """

    __slots__ = ("accounts", "charged", "collected", "journal", "merchant", "rules", "short")

    def __init__(self, rules: Rules, merchant: int, journal: list[Posting] | None) -> None:
        self.rules = rules
        self.merchant = merchant
        self.journal = journal
        self.accounts = [0] * len(ACCOUNTS)
        self.charged = [0] * len(FINE_KINDS)
        self.collected = [0] * len(FINE_KINDS)
        self.short: dict[tuple[int, str], int] = {}

    def open(self) -> None:
        """Posts the initial capital."""
        self.post(CAPITAL, BALANCE, self.rules.initial_cash, 0, "capital", None)
        self.post(CAPITAL, DEPOSIT, self.rules.initial_deposit, 0, "capital", None)

    def copy(self) -> Ledger:
        """Independent ledger of the same content, with the same journal."""
        other = Ledger.__new__(Ledger)
        other.rules, other.merchant, other.journal = self.rules, self.merchant, self.journal
        other.go_back(self.mark())
        return other

    def mark(self) -> tuple[Any, ...]:
        """Mark of the amounts, for going back once."""
        return self.accounts.copy(), self.charged.copy(), self.collected.copy(), self.short.copy()

    def go_back(self, mark: tuple[Any, ...]) -> None:
        """Returns to the amounts of a mark."""
        self.accounts, self.charged, self.collected, self.short = mark

    @property
    def net_assets(self) -> int:
        """Sum of the merchant's own accounts in cents."""
        a = self.accounts
        return a[BALANCE] + a[DEPOSIT] + a[IN_TRANSIT] + a[RECEIVABLE]

    def post(self, source: int, target: int, cents: int, t: int, reason: str, order: int | None) -> None:
        """Moves cents from one account to another; a zero amount leaves no posting."""
        if cents:
            accounts = self.accounts
            accounts[source] -= cents
            accounts[target] += cents
            if self.journal is not None:
                self.journal.append(
                    Posting(t, self.merchant, ACCOUNTS[source], ACCOUNTS[target], cents, reason, order)
                )

    def credit(self, source: int, cents: int, t: int, reason: str, order: int) -> None:
        """Moves cents to the merchant, refilling the deposit before the balance."""
        missing = self.rules.initial_deposit - self.accounts[DEPOSIT]
        if missing:
            refill = min(cents, missing)
            self.post(source, DEPOSIT, refill, t, reason, order)
            cents -= refill
        self.post(source, BALANCE, cents, t, reason, order)

    def debit(self, target: int, cents: int, t: int, reason: str, order: int) -> int:
        """Takes cents from the balance, then from the deposit; what is missing is waived.

        Returns:
            The cents posted.
        """
        accounts = self.accounts
        paid = min(cents, accounts[BALANCE])
        self.post(BALANCE, target, paid, t, reason, order)
        if paid < cents:
            rest = min(cents - paid, accounts[DEPOSIT])
            self.post(DEPOSIT, target, rest, t, reason, order)
            paid += rest
            if paid < cents:
                self.short[order, reason] = paid
        return paid

    def fine(self, kind: int, t: int, order: int) -> None:
        """Charges the fine of a kind for an order."""
        cents = self.rules.fines[kind]
        if cents:
            self.charged[kind] += cents
            self.collected[kind] += self.debit(FINES, cents, t, FINE_KINDS[kind], order)

    def collected_fine(self, kind: int, order: int) -> int:
        """Cents collected of a fine that was charged for an order."""
        cents = self.rules.fines[kind]
        return self.short.get((order, FINE_KINDS[kind]), cents) if self.short else cents
