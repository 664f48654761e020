"""The fixed words of the daily report, one table per language.

Catalogue words (categories, phrases of names) stay as they are in every language.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReportWords:
    """Templates of the report in one language; columns and trends in their order there."""

    title: str
    date: str
    cut_off: str
    overview: str
    units: str
    changes: str
    offers: str
    categories: str
    category_columns: tuple[str, ...]
    keywords: str
    keyword_columns: tuple[str, ...]
    events: str
    event_columns: tuple[str, ...]
    nothing: str
    notes: str
    whole_market: str
    no_forecast: str
    up: str
    steady: str
    down: str
    unknown: str


ENGLISH = ReportWords(
    title="Market report, day {}{}",
    date=" ({})",
    cut_off="Data through day {} ({}).",
    overview="Overview",
    units="Market units on day {}: {:.1f}",
    changes="Change vs the day before: {}; vs the mean of up to 7 days before: {} ({})",
    offers="Products on offer: {} of {}",
    categories="Categories",
    category_columns=(
        "category",
        "units",
        "vs day before",
        "vs 7-day mean",
        "trend",
        "on offer",
        "median supplier price",
    ),
    keywords="Keyword opportunities",
    keyword_columns=("keyword", "category", "offers", "median supplier price", "mean rating"),
    events="Supplier events on day {}",
    event_columns=(
        "category",
        "price rises",
        "price drops",
        "price recoveries",
        "withdrawals",
        "returns",
        "shipping slow-downs",
        "shipping recoveries",
    ),
    nothing="None.",
    notes="Notes",
    whole_market="All figures cover the whole market, not this shop.",
    no_forecast="This report contains no forecast.",
    up="up",
    steady="steady",
    down="down",
    unknown="n/a",
)

CHINESE = ReportWords(
    title="市场日报，第 {} 天{}",
    date="（{}）",
    cut_off="数据截至第 {} 天（{}）。",
    overview="概览",
    units="第 {} 天市场销量：{:.1f}",
    changes="较前一日：{}；较此前至多 7 日均值：{}（{}）",
    offers="在售商品：{}/{}",
    categories="类目",
    category_columns=("类目", "销量", "较前一日", "较 7 日均值", "趋势", "在售", "供货价中位数"),
    keywords="关键词机会",
    keyword_columns=("关键词", "类目", "在售", "供货价中位数", "平均评分"),
    events="第 {} 天供应事件",
    event_columns=("类目", "涨价", "降价", "价格恢复", "下架", "恢复上架", "发货变慢", "发货恢复"),
    nothing="无。",
    notes="说明",
    whole_market="所有数据针对整个市场，而非本店铺。",
    no_forecast="本日报不含任何预测。",
    up="上升",
    steady="平稳",
    down="下降",
    unknown="无",
)

REPORT_WORDS = {"en": ENGLISH, "zh": CHINESE}
