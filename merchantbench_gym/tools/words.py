"""The fixed words of the observation text, one table per language.

Identifiers (statuses, events, risks) stay as they are in every language, because they are values of
arguments.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """Templates of the lines of an observation in one language."""

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
    date=" ({})",
    turn=" | turn {} of {}",
    header="Day {} of {}, {:02d}:00{} | window {} of {}{}",
    report="Today's market report is ready: get_daily_report.",
    waiting="Your step has ended; waiting for the other merchants.",
    finished="Run finished (horizon) at {}.",
    closed="Shop closed at {}.",
    changes="Orders since last window ({}-{}): {} changed, {} new | now {}",
    totals="Orders in all: {} | {}",
    shelf="Shelf: {} of {} listed, {} free",
    events="Supply events since last window: {}",
    risks="Risks now: {} | new since last window: {}",
    cash=(
        "Cash: balance {:.2f}, deposit {:.2f}, in transit {:.2f}, receivable {:.2f} | net assets {:.2f} "
        "({:+.2f} since last window) | fines so far {:.2f}"
    ),
    fees=", platform fees {:.2f}, fulfilment fees {:.2f}, refund loss {:.2f}",
    result="Result: sales {:.2f}, cost of goods {:.2f}{}, net profit of finished orders {:.2f}",
    rating="Shop rating: {:.2f} ({} stars), demand x{:.2f}, {} rated orders, published through day {}",
    no_rating="Shop rating: n/a",
    goal="Goal: maximise net assets at the end of the run.",
    custom_goals="Goal: as stated in the brief.",
)

CHINESE = Words(
    separator="、",
    none="无",
    date="（{}）",
    turn="｜回合 {}/{}",
    header="第 {} 天（共 {} 天）{:02d}:00{}｜窗口 {}/{}{}",
    report="今日市场日报已生成：get_daily_report。",
    waiting="本窗口操作已结束，等待其他商家。",
    finished="运行结束（horizon），{}。",
    closed="店铺已关闭，{}。",
    changes="上一窗口以来的订单（{}-{}）：变动 {}，新增 {}｜现为 {}",
    totals="全部订单：{}｜{}",
    # Positions: listed, limit, free.
    shelf="货架：已上架 {}/{}，空位 {}",
    events="上一窗口以来的供应事件：{}",
    risks="当前风险：{}｜上一窗口以来新增：{}",
    cash=(
        "资金：余额 {:.2f}，保证金 {:.2f}，在途 {:.2f}，应收 {:.2f}｜"
        "净资产 {:.2f}（较上一窗口 {:+.2f}）｜累计罚款 {:.2f}"
    ),
    fees="，平台佣金 {:.2f}，履约费 {:.2f}，退款损失 {:.2f}",
    result="经营：销售额 {:.2f}，商品成本 {:.2f}{}，已完结订单净利润 {:.2f}",
    rating="店铺评分：{:.2f}（{} 星），需求系数 ×{:.2f}，计分订单 {}，公布至第 {} 天",
    no_rating="店铺评分：无",
    goal="目标：运行结束时净资产最大。",
    custom_goals="目标：见规则说明。",
)

WORDS = {"en": ENGLISH, "zh": CHINESE}
