"""The fixed words of the observation text, one table per language.

Identifiers (statuses, events, risks) stay as they are in every language, because they are values of
arguments.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """Templates of the lines of an observation in one language, for the operator `%`."""

    separator: str
    none: str
    date: str
    turn: str
    header: str
    report: str
    waiting: str
    finished: str
    closed: str
    changes: str
    totals: str
    shelf: str
    events: str
    risks: str
    cash: str
    fees: str
    result: str
    rating: str
    no_rating: str
    goal: str
    custom_goals: str


ENGLISH = Words(
    separator=", ",
    none="none",
    date=" (%s)",
    turn=" | turn %s of %s",
    header="Day %s of %s, %02d:00%s | window %s of %s%s",
    report="Today's market report is ready: get_daily_report.",
    waiting="Your step has ended; waiting for the other merchants.",
    finished="Run finished (horizon) at %s.",
    closed="Shop closed at %s.",
    changes="Orders since last window (%s-%s): %s changed, %s new | now %s",
    totals="Orders in all: %s | %s",
    shelf="Shelf: %s of %s listed, %s free",
    events="Supply events since last window: %s",
    risks="Risks now: %s | new since last window: %s",
    cash=(
        "Cash: balance %.2f, deposit %.2f, in transit %.2f, receivable %.2f | net assets %.2f "
        "(%+.2f since last window) | fines so far %.2f"
    ),
    fees=", platform fees %.2f, fulfilment fees %.2f, refund loss %.2f",
    result="Result: sales %.2f, cost of goods %.2f%s, net profit of finished orders %.2f",
    rating="Shop rating: %.2f (%s stars), demand x%.2f, %s rated orders, published through day %s",
    no_rating="Shop rating: n/a",
    goal="Goal: maximise net assets at the end of the run.",
    custom_goals="Goal: as stated in the brief.",
)

CHINESE = Words(
    separator="、",
    none="无",
    date="（%s）",
    turn="｜回合 %s/%s",
    header="第 %s 天（共 %s 天）%02d:00%s｜窗口 %s/%s%s",
    report="今日市场日报已生成：get_daily_report。",
    waiting="本窗口操作已结束，等待其他商家。",
    finished="运行结束（horizon），%s。",
    closed="店铺已关闭，%s。",
    changes="上一窗口以来的订单（%s-%s）：变动 %s，新增 %s｜现为 %s",
    totals="全部订单：%s｜%s",
    # Positions: listed, limit, free.
    shelf="货架：已上架 %s/%s，空位 %s",
    events="上一窗口以来的供应事件：%s",
    risks="当前风险：%s｜上一窗口以来新增：%s",
    cash=(
        "资金：余额 %.2f，保证金 %.2f，在途 %.2f，应收 %.2f｜净资产 %.2f（较上一窗口 %+.2f）｜累计罚款 %.2f"
    ),
    fees="，平台佣金 %.2f，履约费 %.2f，退款损失 %.2f",
    result="经营：销售额 %.2f，商品成本 %.2f%s，已完结订单净利润 %.2f",
    rating="店铺评分：%.2f（%s 星），需求系数 ×%.2f，计分订单 %s，公布至第 %s 天",
    no_rating="店铺评分：无",
    goal="目标：运行结束时净资产最大。",
    custom_goals="目标：见规则说明。",
)

WORDS = {"en": ENGLISH, "zh": CHINESE}
