"""The Chinese brief, section by section; same sections and figures as the English one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from merchantbench_gym.market.catalog import CATEGORIES
from merchantbench_gym.tools.numbers import amount, percent, plain, two_digits

if TYPE_CHECKING:
    from collections.abc import Callable

    from merchantbench_gym.scenario import Scenario

STARS = 5


def _hours(hours: int) -> str:
    """Hours, with whole days beside them where they come out even."""
    return f"{hours} 小时" + (f"（{hours // 24} 天）" if hours % 24 == 0 else "")


def _lines(*lines: str) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _role(_: Scenario) -> tuple[str, str]:
    return "角色", (
        "你经营一家小型网上代发货店铺。你从供应商提供的商品中选品，自定售价上架，订单由供应商直接发给顾客。"
    )


def _goal(_: Scenario) -> tuple[str, str]:
    return "目标", "使运行结束时的净资产（余额 + 保证金 + 在途 + 应收）最高。"


def _time(s: Scenario) -> tuple[str, str]:
    start = s.calendar.start_date
    turns, calls = s.turns.max_turns_per_window, s.turns.max_calls_per_turn
    if turns == 1:
        rule = (
            f"每个窗口有 1 个回合：一条消息，最多含 {calls} 个工具调用。"
            "每条消息都会关闭窗口，没有调用的也一样。"
            "若调用 end_of_step，它必须是该消息的最后一个调用。"
        )
    else:
        rule = (
            f"每个窗口最多 {turns} 个回合。一个回合是一条消息，最多含 {calls} 个工具调用；"
            "没有调用的消息同样占用一个回合。"
            "窗口以 end_of_step 关闭（它必须是该消息的最后一个调用），或在最后一个回合之后关闭。"
        )
    return "时间", _lines(
        f"运行共 {s.run.horizon_days} 天"
        + (f"；第 1 天为 {start.isoformat()}。" if start else "。")
        + "最后一天之后不再有人下单，未完结的订单继续走完。",
        f"每 {_hours(s.run.activation_period)}开启一个决策窗口。窗口开启期间时钟停止；"
        "你的操作从下一小时起影响销售。",
        rule,
    )


def _capital(s: Scenario) -> tuple[str, str]:
    return "资金", _lines(
        f"初始余额 {amount(s.merchant.initial_cash)}，"
        f"锁定保证金 {amount(s.merchant.initial_deposit)}。没有贷款。"
    )


def _actions(s: Scenario) -> tuple[str, str]:
    low, high = amount(s.merchant.min_price), amount(s.merchant.max_price)
    return "你能做什么", _lines(
        "选品：搜索在售商品，查看供应商。",
        f"上架与定价：货架最多 {s.merchant.max_listings} 个商品。上架、下架和改价免费。"
        f"售价须在 {low} 到 {high} 之间。",
        "监控：跟踪订单和货架商品的供应情况。",
        "业绩与资金：查看经营结果、账户和订单占用的资金。",
        "各工具的用法见其说明。",
    )


def _demand(s: Scenario) -> tuple[str, str]:
    life = s.lifecycle
    factors = ["季节", "一天中的时刻", "售价"]
    factors += ["曝光年龄"] if life.enabled else []
    factors += ["店铺评分"] if s.rating.enabled else []
    lines = [f"顾客对每个商品的需求取决于{'、'.join(factors[:-1])}和{factors[-1]}，各商品相互独立。"]
    if life.enabled:
        text = (
            "曝光是商品所能触达的感兴趣顾客的比例，取决于曝光年龄，即在架天数。"
            f"新上架商品从 {percent(life.start)} 开始，{plain(life.ramp_days)} 天后达到 100 %"
        )
        if life.decay_per_day > 0:
            half_life = math.log(2) / life.decay_per_day
            days = float(f"{half_life:.2g}") if half_life < 100 else round(half_life)
            text += f"；之后向 {percent(life.floor)} 衰减，半衰期约 {plain(days)} 天。"
        else:
            text += "，此后保持不变。"
        lines += [text, "下架再上架不会重置：年龄继续计算，每下架一天减少一天。"]
    return "需求", _lines(*lines)


def _supply(s: Scenario) -> tuple[str, str]:
    fined = "并被罚款" if s.fines.stockout else ""
    return "供应", _lines(
        "商品的供应价、供货状态、发货时间和库存会变化。异常通常是暂时的。",
        "订单沿用下单那一小时的供应价和发货时间。",
        f"供应商已撤下或没有库存的商品会留在你的货架上，直到你将其下架；其订单会以 stockout 失败{fined}。",
        "显示的评分是过去的记录，不是保证。",
    )


def _orders(s: Scenario) -> tuple[str, str]:
    fees = s.fees.enabled
    price = "供应价和履约费" if fees else "供应价"
    refund = "退款退回收得回的那部分成本" if fees else "退款退回成本"
    return "订单与资金", _lines(
        f"采购自动进行。{price}只从余额支付，不动用保证金；余额不足时订单以 insufficient_balance 失败。",
        "每个订单只含一件商品。若未先被取消，经过供应商发货时间后发货，再经过物流时间后送达。",
        "成本在送达前计入在途；送达后售价转为应收。",
        f"订单在送达后 1 小时至 {_hours(s.orders.settlement_hours_max)}内结算。"
        "正常结算或差评结算时，应收款支付给你。",
        f"取消退回成本；{refund}，但收不到售价；仅退款则两者都失去。",
        "状态流转：ordered，［late，］shipped，delivered，"
        "然后 settled_normal、settled_bad_review、settled_refund 或 "
        "settled_only_refund；ordered 或 late 之后可为 cancelled；"
        "下单即失败：stockout、insufficient_balance。",
    )


def _promise(s: Scenario) -> tuple[str, str]:
    return "发货承诺", _lines(f"下单后 {s.merchant.promised_ship_hours} 小时内未发货的订单变为 late。")


def _fines(s: Scenario) -> tuple[str, str]:
    f = s.fines
    return "罚款", _lines(
        f"每单：质量退款 {amount(f.refund)}，差评 {amount(f.bad_review)}，迟发 {amount(f.late)}，"
        f"缺货 {amount(f.stockout)}，余额不足 {amount(f.insufficient_balance)}，取消 {amount(f.cancel)}，"
        f"仅退款 {amount(f.only_refund)}（货物损失）。",
        f"每小时最多收取 {s.orders.violations_per_hour} 笔缺货和余额不足罚款；该小时其余订单流失，不罚款。",
    )


def _closure(s: Scenario) -> tuple[str, str]:
    return "关店", _lines(
        f"罚款先扣余额，再扣保证金。收入先把保证金补足到 {amount(s.merchant.initial_deposit)}。",
        "保证金降到 0.00 时店铺永久关闭。仅余额为零不会关店。",
    )


def _rating(s: Scenario) -> tuple[str, str]:
    r = s.rating
    if not r.enabled:
        return "店铺评分", ""
    kinds = (
        ("正常结算", r.score.normal, r.weight.normal),
        ("正常结算但迟发", r.score.late, r.weight.late),
        ("退款", r.score.refund, r.weight.refund),
        ("仅退款", r.score.only_refund, r.weight.only_refund),
        ("差评", r.score.bad_review, r.weight.bad_review),
        ("缺货", r.score.stockout, r.weight.stockout),
    )
    scores = "，".join(f"{name} {plain(score)} x {plain(weight)}" for name, score, weight in kinds)
    steps = " / ".join(two_digits(x) for x in r.thresholds)
    factors = " / ".join(two_digits(x) for x in r.multipliers)
    return "店铺评分", _lines(
        f"每个完结订单按分数 x 权重计入：{scores}。取消和未付款的订单不计。",
        f"评分是它们与先验值 {plain(r.prior)}（权重 {plain(r.prior_weight)}）的加权平均。"
        f"记录的权重每 {plain(r.half_life_days)} 天减半。",
        f"低于第一档为 1 星；2、3、4、{STARS} 星分别从 {steps} 起。"
        f"1 至 {STARS} 星的需求系数为 {factors}。评分在午夜公布。",
    )


def _fees(s: Scenario) -> tuple[str, str]:
    if not s.fees.enabled:
        return "费用", ""
    rows = "；".join(
        f"{name} {percent(getattr(s.fees.take_rate, name))}，{amount(getattr(s.fees.fulfilment, name))}"
        for name in CATEGORIES
    )
    reverse = "退款还须支付与履约费相同的逆向物流费。" if s.fees.reverse_logistics else "退款不收逆向物流费。"
    return "费用", _lines(
        f"平台在正常或差评结算时按售价抽成，并在采购时收取履约费，履约费不退。抽成比例与履约费：{rows}。",
        f"退款收回成本的 {percent(s.fees.refund_recovery)}。{reverse}",
    )


def _forms(s: Scenario) -> tuple[str, str]:
    start = s.calendar.start_date
    return "类目与时间", _lines(
        f"类目：{'、'.join(CATEGORIES)}。",
        "时间写作 D<天>H<时>：D13H00 即第 13 天 00:00。"
        + (f"第 1 天为 {start.isoformat()}。" if start else ""),
        "金额为同一货币，保留两位小数。",
    )


SECTIONS: tuple[Callable[[Scenario], tuple[str, str]], ...] = (
    _role,
    _goal,
    _time,
    _capital,
    _actions,
    _demand,
    _supply,
    _orders,
    _promise,
    _fines,
    _closure,
    _rating,
    _fees,
    _forms,
)
