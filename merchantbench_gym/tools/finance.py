"""The merchant's accounts, the observation as data, and the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from merchantbench_gym.tools.brief import brief, brief_hash
from merchantbench_gym.tools.registry import tool
from merchantbench_gym.tools.results import money

if TYPE_CHECKING:
    from merchantbench_gym.tools.context import Context


@tool(kind="READ", examples=[{}])
def query_balance(ctx: Context) -> dict[str, Any]:
    """Show the cash accounts and net assets.

    balance is available for procurement; deposit_pool is the locked guarantee; in_transit is the cost of
    goods not yet delivered; receivable is delivered, not yet settled sales; net_assets is the sum of these
    four; cumulative_fine is all fines to date. Amounts are those of this window.
    """
    accounts = ctx.view.accounts()
    return {
        "balance": money(accounts.balance),
        "deposit_pool": money(accounts.deposit),
        "in_transit": money(accounts.in_transit),
        "receivable": money(accounts.receivable),
        "net_assets": money(accounts.net_assets),
        "cumulative_fine": money(accounts.fines),
    }


@tool(kind="READ", examples=[{}])
def get_store_snapshot(ctx: Context) -> dict[str, Any]:
    """Return the observation as structured data.

    The figures behind the observation text: time, orders, supply events and risks, cash, results and rating.
    Shelf counts and current risks are as of now, everything else is that of this window.
    """
    return ctx.observation()


@tool(kind="READ", examples=[{}])
def query_platform_rules(ctx: Context) -> dict[str, Any]:
    """Return the brief.

    The rules of the run as stated at its start, with a short hash of the text; constant for the run.
    """
    text = brief(ctx.scenario, ctx.language)
    return {"language": ctx.language, "brief_hash": brief_hash(text), "system_prompt": text}
