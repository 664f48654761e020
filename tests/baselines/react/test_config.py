"""Settings: four sources, one precedence, and no secrets in what is shown."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym.baselines import ConfigError, ReActConfig, ReActPolicy
from merchantbench_gym.baselines.react.config import SETTINGS, parse_env

KEY = "a-key-nobody-must-see"

# Setting: (in the environment, in the file, as an argument, default), and how the texts are read.
VALUES: dict[str, tuple[str, str, Any, Any]] = {
    "api_key": ("env-key-1234", "file-key-1234", "argument-key", None),
    "base_url": ("http://env/v1", "http://file/v1", "http://argument/v1", None),
    "model": ("env-model", "file-model", "argument-model", None),
    "temperature": ("0.5", "0.25", 0.75, None),
    "max_output_tokens": ("100", "200", 300, None),
    "tool_choice": ("required", "none", "auto", "auto"),
    "claude": ("off", "blocks", "extend_params", "auto"),
    "context_window": ("1000", "2000", 3000, 200_000),
    "trigger": ("1001", "2001", 3001, 160_000),
    "keep": ("1002", "2002", 3002, 30_000),
    "timeout": ("10", "20.5", 30.0, 120.0),
    "max_hops": ("1", "2", 3, None),
    "reasoning": ("all", "window", "off", "off"),
    "window_deadline": ("11", "22", 33.0, None),
    "max_failed_windows": ("4", "5", 6, 3),
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable or "NONE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(name: str, text: str) -> Any:
    default = VALUES[name][2]
    return type(default)(text)


def test_every_setting_with_a_variable_is_tested() -> None:
    assert set(VALUES) == {name for name, setting in SETTINGS.items() if setting.variable}


@pytest.mark.parametrize("name", VALUES)
def test_precedence(name: str, monkeypatch: pytest.MonkeyPatch, clean: Path) -> None:
    in_env, in_file, argument, default = VALUES[name]
    variable = SETTINGS[name].variable

    def resolved(**settings: Any) -> tuple[Any, str]:
        config = ReActConfig(**settings)
        return getattr(config, name), config.sources[name]

    assert resolved() == (default, "default")
    (clean / ".env").write_text(f"{variable}={in_file}\n")
    assert resolved() == (read(name, in_file), ".env")
    monkeypatch.setenv(variable, in_env)
    assert resolved() == (read(name, in_env), "environment")
    assert resolved(**{name: argument}) == (argument, "argument")
    monkeypatch.setenv(variable, "  ")
    assert resolved(**{name: None}) == (read(name, in_file), ".env")
    (clean / ".env").write_text(f"{variable}=''\n")
    assert resolved() == (default, "default")


def test_a_file_of_any_name_and_an_untouched_environment(clean: Path) -> None:
    (clean / ".env").write_text("MODEL_NAME=near\n")
    (clean / "other.env").write_text("MODEL_NAME=far\n")
    before = dict(os.environ)
    config = ReActConfig(env_file=clean / "other.env")
    assert (config.model, config.sources["model"]) == ("far", str(clean / "other.env"))
    assert dict(os.environ) == before
    with pytest.raises(ConfigError, match=r"missing\.env"):
        ReActConfig(env_file="missing.env")


def test_lines_of_a_file() -> None:
    text = """
        # a comment
        PLAIN=value
        export EXPORTED = spaced out
        COMMENTED=value # and more
        HASH=va#lue
        SINGLE='a # b \\n'   # c
        DOUBLE="a \\"b\\" \\n# c"
        EMPTY=
        ONLY= # nothing
        no assignment
        1BAD=x
    """
    assert parse_env(text) == {
        "PLAIN": "value",
        "EXPORTED": "spaced out",
        "COMMENTED": "value",
        "HASH": "va#lue",
        "SINGLE": "a # b \\n",
        "DOUBLE": 'a "b" \n# c',
        "EMPTY": "",
        "ONLY": "",
    }


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("temperature", "warm", "number of at least 0"),
        ("temperature", "nan", "number of at least 0"),
        ("temperature", "-1", "number of at least 0"),
        ("max_output_tokens", "0", "integer of at least 1"),
        ("context_window", "2e5", "integer of at least 1"),
        ("timeout", "0", "seconds above 0"),
        ("reasoning", "loud", "off, window or all"),
        ("claude", "yes", "auto, blocks"),
        ("tool_choice", "any", "auto, required, none"),
        ("base_url", "localhost:80", "http or https URL"),
        ("base_url", "https://user:pass/word@host/v1", "http or https URL"),
    ],
)
def test_a_bad_value_names_variable_source_and_form(
    name: str, value: str, form: str, monkeypatch: pytest.MonkeyPatch, clean: Path
) -> None:
    variable = SETTINGS[name].variable
    with pytest.raises(ConfigError, match=f"{name} as an argument must be .*{form}"):
        ReActConfig(**{name: value})
    (clean / ".env").write_text(f"{variable}={value}")
    with pytest.raises(ConfigError, match=rf"{variable} in \.env must be .*{form}"):
        ReActConfig()
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable} in environment must be .*{form}"):
        ReActConfig()


@pytest.mark.parametrize(
    "settings",
    [
        {"prices": {"input": 1}},
        {"prices": {"input": 1, "output": "much"}},
        {"prices": {"input": 1, "output": -1}},
        {"prices": {"input": 1, "output": 1, "tax": 1}},
        {"extra_headers": {"X": 1}},
        {"extra_headers": {"X": "a\nb"}},
        {"extra_body": {"x": object()}},
        {"extra_body": {"x": float("nan")}},
        {"retry": {"short": [-1]}},
        {"retry": {"middle": [1]}},
        {"reference": "yes"},
        {"max_hops": True},
        {"timeout": True},
        {"hops": 3},
    ],
)
def test_bad_arguments(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        ReActConfig(**settings)


def test_missing_settings() -> None:
    with pytest.raises(ConfigError, match=r"model is missing.*MODEL_NAME"):
        ReActPolicy(api_key=KEY)
    with pytest.raises(ConfigError, match=r"api_key is missing.*OPENAI_API_KEY"):
        ReActPolicy(model="m")
    assert ReActPolicy(object(), "m").config.api_key is None


def test_describe_hides_what_is_secret() -> None:
    config = ReActConfig(
        api_key=KEY,
        model="m",
        base_url="https://user:pass@host/v1?token=t",
        extra_headers={"Authorization": "Basic c2VjcmV0LXNlY3JldA=="},
        extra_body={
            "echo": f"x {KEY} y Bearer abcdefghijkl",
            "gateway": {"api_key": "swordfish-1", "tokens": ["swordfish-2", 7], "max_tokens": 5},
        },
    )
    shown = config.describe()
    assert shown["api_key"] == {"value": "set", "source": "argument"}
    assert shown["base_url"]["value"] == "https://host/v1"
    assert shown["extra_headers"]["value"] == {"Authorization": "set"}
    gateway = {"api_key": "set", "tokens": ["set", 7], "max_tokens": 5}
    assert shown["extra_body"]["value"]["gateway"] == gateway
    assert shown["timeout"] == {"value": 120.0, "source": "default"}
    for text in (json.dumps(shown), repr(config)):
        for secret in (KEY, "user", "token=t", "c2VjcmV0", "abcdefghijkl", "swordfish"):
            assert secret not in text


def test_a_bad_key_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        ReActConfig(api_key="sk-12345678\nrest")
    assert "sk-12345678" not in str(caught.value)


def test_the_hash_is_of_the_settings_and_not_of_their_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    argument = ReActConfig(model="m", api_key=KEY).config_hash()
    monkeypatch.setenv("MODEL_NAME", "m")
    assert ReActConfig().config_hash() == argument
    assert ReActConfig(temperature=0.5).config_hash() != argument


def test_settings_are_fixed_and_changed_into_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ReActConfig(model="m", prices={"input": "0.1", "output": 2, "cache_write": None})
    assert config.prices == {"input": Decimal("0.1"), "output": Decimal(2)}
    with pytest.raises(AttributeError):
        config.model = "n"
    other = config.changed(model=None, temperature=1)
    assert (other.model, other.temperature, config.temperature) == ("m", 1.0, None)
    policy = ReActPolicy(object(), "other", config=config)
    assert (policy.config.model, policy.config.prices) == ("other", config.prices)
    assert policy.context == {
        "context_window": 200_000,
        "output_reserve": 16_384,
        "trigger": 160_000,
        "keep": 30_000,
    }


def test_reference_keeps_reasoning_unless_told_otherwise() -> None:
    assert ReActConfig(reference=True).reasoning == "all"
    assert ReActConfig(reference=True, keep=5).context == {
        "mode": "reference",
        "context_window": 200_000,
        "output_reserve": 16_384,
        "trigger": 160_000,
        "keep": 5,
    }
    assert ReActConfig(reference=True, reasoning="off").reasoning == "off"


def test_waits_can_be_given() -> None:
    config = ReActConfig(retry={"short": [1, 2]})
    assert config.retry["short"] == (1.0, 2.0)
    assert sum(config.retry["long"]) == 810


@pytest.mark.parametrize(
    ("window", "answer", "reserve"),
    [(200_000, None, 16_384), (131_072, None, 16_384), (32_768, None, 4_096), (200_000, 2_000, 2_000)],
)
def test_room_for_the_answer_follows_the_window_unless_its_size_is_set(
    window: int, answer: int | None, reserve: int
) -> None:
    config = ReActConfig(context_window=window, max_output_tokens=answer)
    assert config.output_reserve == config.context["output_reserve"] == reserve
