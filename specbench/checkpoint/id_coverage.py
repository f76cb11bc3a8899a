"""For which target classes and versions the rules of layer ids were read, and for which not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import pairwise

from specbench.checkpoint.conventions import architecture, parse_version, rules_for
from specbench.checkpoint.id_rules import DEEPSEEK, GPT_OSS, MINIMAX, RULES, Version
from specbench.errors import ConfigError

# Classes that the general rule of SGLang was read for (engine-spec 3.2); one spelling for
# Glm5NextForConditionalGeneration and glm5_next.
GENERAL = frozenset(("llama", "qwen2", "qwen3", "qwen2moe", "qwen3moe", "glm4moe", "glm5next"))
SPECIAL = DEEPSEEK | GPT_OSS | MINIMAX
# The newest version of each code base that was read; a rule without an end is taken to go on.
NEWEST: dict[str, Version] = {
    "sglang": (0, 5, 23), "vllm": (0, 32), "vllm-dflash": (0, 32), "speculators": (0, 9),
}  # fmt: skip
_SHOWN = {
    "deepseekv2": "DeepseekV2", "deepseekv3": "DeepseekV3", "deepseekv32": "DeepseekV32",
    "kimik2": "KimiK2", "kimik25": "KimiK25", "glmmoedsa": "GlmMoeDsa",
    "glm4moelite": "Glm4MoeLite", "gptoss": "GptOss", "minimaxm3vl": "MiniMaxM3VL",
    "llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "qwen2moe": "Qwen2Moe",
    "qwen3moe": "Qwen3Moe", "glm4moe": "Glm4Moe", "glm5next": "Glm5Next",
}  # fmt: skip


def check_arch(name: str) -> None:
    """Refuse a target class whose rules nobody has read; an empty name is no class.

    Raises:
        ConfigError: names the nearest classes, or all of them where none is near.
    """
    wanted, known = architecture(name), GENERAL | SPECIAL
    if not name or wanted in known:
        return
    near = difflib.get_close_matches(wanted, known, n=3)
    raise ConfigError(
        f"--arch {name!r}: the rules for that class were not read.",
        expected=f"{'Nearest' if near else 'One of'}: {_classes(near or known)}, in any spelling.",
        todo="Without --arch the rules of most classes are shown.",
    )


def special_classes() -> str:
    """The classes whose ids SGLang reads otherwise than those of most, for a message."""
    return _classes(SPECIAL)


def gaps(arch: str = "") -> list[str]:
    """Versions of each code base that lie outside every rule, in words.

    >>> gaps("DeepseekV3")[0]
    'sglang before 0.5.8, after 0.5.12 and before 0.5.14'
    """
    found = []
    for code in dict.fromkeys(rule.code for rule in RULES):
        rules = rules_for(code, arch)
        parts = [f"before {_dotted(rules[0].since)}"] if rules[0].since else []
        parts += [
            f"after {_dotted(old.until)} and before {_dotted(new.since)}"
            for old, new in pairwise(rules)
            if old.until and new.since > old.until
        ]
        if parts:
            found.append(f"{code} {', '.join(parts)}")
    return found


def newest() -> str:
    """The newest versions that were read, in words."""
    return ", ".join(f"{code} {_dotted(version)}" for code, version in NEWEST.items())


def unverified(engine: str) -> str:
    """Why the rule that was taken for ``code==version`` was not verified; empty where it was.

    >>> unverified("sglang==0.6")
    'sglang 0.6 was not read, the newest that was is 0.5.23; taken to read ids as that one does'
    """
    code, _, text = (part.strip().lower() for part in engine.partition("=="))
    last = NEWEST.get(code)
    if last is None:
        return ""
    if not text:
        return f"no version of {code} is named; every version that was read does it so"
    version = parse_version(text)
    if version[: len(last)] <= last:
        return ""
    return (
        f"{code} {_dotted(version)} was not read, the newest that was is {_dotted(last)}; "
        "taken to read ids as that one does"
    )


def _classes(names: Iterable[str]) -> str:
    return ", ".join(sorted(_SHOWN[name] for name in names))


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
