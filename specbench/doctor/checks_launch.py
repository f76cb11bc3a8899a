"""Launch arguments of SGLang or vLLM: what they would be silently turned into (engine-spec 4)."""

from __future__ import annotations

import difflib
import json
import math
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from specbench.config import SpecConfig
from specbench.doctor.findings import Fact, Finding, Severity
from specbench.errors import ConfigError
from specbench.resolve import resolve

LLAMA_LIKE = ("LlamaForCausalLM", "Grok1ForCausalLM")
NUMBERS = (
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
)
_DRAFT = "speculative-draft-model"
_KNOWN = {
    *NUMBERS,
    "speculative-algorithm",
    f"{_DRAFT}-path",
    f"{_DRAFT}-quantization",
    "speculative-accept-threshold-single",
    "speculative-accept-threshold-acc",
    "speculative-attention-mode",
    "speculative-token-map",
    "speculative-config",
}
_VLLM = "speculative-config"
_TREE_BACKENDS = ("flashinfer", "fa3", "triton")


def parse_launch(text: str) -> dict[str, str]:
    """Flags and environment settings of a command line; a flag without a value gives ''.

    >>> parse_launch("SGLANG_X=1 --speculative-num-steps 1 --page-size=16 --trust-remote-code")
    {'SGLANG_X': '1', 'speculative-num-steps': '1', 'page-size': '16', 'trust-remote-code': ''}

    Raises:
        ConfigError: a quote is not closed, or nothing in it is a flag or a setting.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(
            f"--launch cannot be split: {error}.", expected="Closed quotes."
        ) from error
    found: dict[str, str] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag, _, value = word[2:].partition("=")
            flag = flag.replace("_", "-")
            found[flag] = value
        elif flag and not found[flag]:
            found[flag], flag = word, ""
        elif word.startswith(("SGLANG_", "VLLM_")) and "=" in word:
            name, _, value = word.partition("=")
            found[name] = value
    if not found:
        raise ConfigError(
            f"--launch {text!r} holds no flag.", expected='Such as "--speculative-num-steps 3".'
        )
    return found


def check_launch(flags: Mapping[str, str], arch: str = "") -> Iterator[Finding]:
    """Every rule that changes what was asked.

    Raises:
        ConfigError: a number that is none.
    """
    flags = _folded(flags)
    if _VLLM in flags:
        yield from _vllm(flags[_VLLM])
    else:
        yield from _algorithm(flags)
        yield from _numbers(flags, arch)
    yield from _lossy(flags)
    yield from _engine(flags)
    unread = [n for n in flags if n.startswith("speculative-") and n not in _KNOWN]
    if unread:
        yield _found(
            "launch.unread", Severity.NOTE, f"--{unread[0]} is not known here", unread,
            "Look it up in your engine's version.", 0.1,
        )  # fmt: skip
    if not any(name.startswith("speculative-") for name in flags):
        near = [n for name in flags for n in difflib.get_close_matches(name, _KNOWN, n=1)]
        yield _found(
            "launch.unread", Severity.NOTE, "No flag of speculation is among them",
            [f"--{name}" for name in flags if not name.isupper()],
            f"Is --{near[0]} meant?" if near else "Give the server's whole command line.", 0.1,
        )  # fmt: skip


def _folded(flags: Mapping[str, str]) -> dict[str, str]:
    """vLLM's ``--speculative-config.KEY VALUE`` as the one JSON table that it stands for."""
    dotted = {n: v for n, v in flags.items() if n.startswith(f"{_VLLM}.")}
    found = {n: v for n, v in flags.items() if n not in dotted}
    if dotted and _VLLM not in found:
        keys = {n.partition(".")[2].replace("-", "_"): v for n, v in dotted.items()}
        table = {key: int(v) if v.isdecimal() else v for key, v in keys.items()}
        found[_VLLM] = json.dumps(table)
    return found


def _algorithm(flags: Mapping[str, str]) -> Iterator[Finding]:
    name = flags.get("speculative-algorithm", "").upper()
    if name in ("EAGLE", "NEXTN"):
        yield _found(
            "launch.algorithm", Severity.ERROR,
            f"--speculative-algorithm {name} runs an EAGLE-3 draft without its layers and fc",
            [f"--speculative-algorithm {name}"], "Write --speculative-algorithm EAGLE3.", 1.0,
        )  # fmt: skip


def _numbers(flags: Mapping[str, str], arch: str) -> Iterator[Finding]:
    steps, topk, tokens = (_integer(flags, name) for name in NUMBERS)
    if steps is None:
        if topk is not None or tokens is not None:
            yield _illegal(
                flags, "num_steps is left out, so topk and num_draft_tokens must be, too"
            )
        elif "speculative-algorithm" in flags:
            asked = "5, 4, 8" if arch in LLAMA_LIKE else "3, 1, 4"
            yield _found(
                "launch.ignored", Severity.NOTE,
                f"No numbers are given: SGLang takes num_steps, topk, num_draft_tokens = {asked}",
                [arch or "class not known"], "Give all three, so that runs can be compared.", 0.2,
            )  # fmt: skip
        return
    if topk is None:
        yield _illegal(flags, "topk is left out beside num_steps; SGLang 0.5.8 ends in a TypeError")
        return
    try:
        spec, changed = resolve(
            num_steps=steps, topk=topk, num_draft_tokens=tokens, as_engine="sglang"
        )
    except ConfigError as error:
        yield _illegal(flags, error.what.rstrip("."))
        return
    for one in changed:
        if one.asked != "None":
            yield _override(spec, one.name, one.asked, one.resolved)


def _override(spec: SpecConfig, name: str, asked: str, resolved: str) -> Finding:
    most = spec.num_steps + 1
    return Finding(
        code="launch.override",
        severity=Severity.ERROR,
        title=f"{name} {asked} silently becomes {resolved}: accept length cannot exceed {most}",
        evidence=(
            Fact(
                text=f"asked {asked}, resolved {resolved}", where=f"--speculative-{_dashed(name)}"
            ),
            Fact(text="num_steps wins when topk is 1", where="SGLang server arguments"),
        ),
        remedy=f"For {int(asked) - 1} drafts a step: --speculative-num-steps {int(asked) - 1}, or "
        "topk over 1 for a tree."
        if name == "num_draft_tokens"
        else f"Write {resolved}.",
        figures={"asked": int(asked), "resolved": int(resolved), "most_accept_length": most},
        score=0.9,
    )


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _illegal(flags: Mapping[str, str], why: str) -> Finding:
    return _found(
        "launch.illegal", Severity.ERROR, why[0].upper() + why[1:],
        [f"--{name} {flags[name]}" for name in NUMBERS if name in flags],
        "See specbench sweep --explain K,B,N for what fits.", 0.8,
    )  # fmt: skip


def _lossy(flags: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("speculative-accept-threshold-single", "speculative-accept-threshold-acc"):
        value = flags.get(name)
        if value is not None and _number(name, value) < 1:
            yield _found(
                "launch.lossy", Severity.ERROR,
                f"--{name} {value} accepts tokens that the target would not write",
                [f"--{name} {value}"], f"Write --{name} 1.0 to measure the draft.", 0.6,
            )  # fmt: skip
    for name in flags:
        if name.startswith("SGLANG_SIMULATE_ACC"):
            yield _found(
                "launch.lossy", Severity.ERROR, f"{name} is set: accept length is made up",
                [f"{name}={flags[name]}"], f"Unset {name}.", 0.9,
            )  # fmt: skip


def _engine(flags: Mapping[str, str]) -> Iterator[Finding]:
    topk = _integer(flags, "speculative-eagle-topk") or 1
    backends = [flags[n] for n in flags if n.endswith("attention-backend")]
    if topk > 1 and "trtllm_mha" in backends:
        yield _illegal(
            flags, "attention backend trtllm_mha verifies chains only, and topk is over 1"
        )
    page = _integer(flags, "page-size") or 1
    if topk > 1 and page > 1 and backends and not set(backends) & set(_TREE_BACKENDS):
        yield _illegal(
            flags, f"page size {page} with topk over 1 needs {', '.join(_TREE_BACKENDS)}"
        )
    inherits = _VLLM not in flags  # there the draft's quantisation is a key of its own
    if inherits and "quantization" in flags and f"{_DRAFT}-quantization" not in flags:
        yield _found(
            "launch.quantised", Severity.WARNING,
            f"The draft inherits --quantization {flags['quantization']} in SGLang",
            [f"--quantization {flags['quantization']}"],
            "Add --speculative-draft-model-quantization unquant.", 0.5,
        )  # fmt: skip
    if flags.get("kv-cache-dtype", "auto").startswith("fp8"):
        yield _found(
            "launch.quantised", Severity.WARNING, "The draft's cache is fp8, too",
            [f"--kv-cache-dtype {flags['kv-cache-dtype']}"],
            "Compare with --kv-cache-dtype auto.", 0.4,
        )  # fmt: skip
    if "speculative-token-map" in flags:
        yield _found(
            "launch.ignored", Severity.WARNING, "--speculative-token-map does nothing for EAGLE-3",
            ["--speculative-token-map"], "Drop it; d2t in the draft says its tokens.", 0.2,
        )  # fmt: skip


def _vllm(text: str) -> Iterator[Finding]:
    try:
        table: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--speculative-config is not JSON: {error}.") from error
    if not isinstance(table, dict):
        raise ConfigError("--speculative-config is not a table.")
    method = table.get("method")
    if method is None and "eagle3" not in str(table.get("model", "")).lower():
        yield _found(
            "launch.algorithm", Severity.WARNING,
            "No method is given, and the path has no eagle3 in it for vLLM to infer it from",
            [text], 'Add "method": "eagle3".', 0.7,
        )  # fmt: skip
    elif method not in (None, "eagle3"):
        yield _found(
            "launch.algorithm", Severity.ERROR, f"method {method!r} is not an EAGLE-3 one",
            [text], 'Write "method": "eagle3".', 1.0,
        )  # fmt: skip
    if table.get("rejection_sample_method") == "synthetic":
        yield _found(
            "launch.lossy", Severity.ERROR, "Synthetic acceptance: accept length is made up",
            [text], "Drop rejection_sample_method.", 0.9,
        )  # fmt: skip
    drafts = table.get("num_speculative_tokens")
    if type(drafts) is not int or not 1 <= drafts <= 128:
        yield _found(
            "launch.illegal", Severity.ERROR, f"num_speculative_tokens is {drafts!r}",
            [text], "Give 1..128: SGLang's num_steps of a chain.", 0.8,
        )  # fmt: skip


def _found(
    code: str, severity: Severity, title: str, seen: list[str], remedy: str, score: float
) -> Finding:
    return Finding(
        code=code,
        severity=severity,
        title=title,
        evidence=tuple(Fact(text=text, where="launch arguments") for text in seen),
        remedy=remedy,
        score=score,
    )


def _integer(flags: Mapping[str, str], name: str) -> int | None:
    if name not in flags:
        return None
    try:
        return int(flags[name])
    except ValueError as error:
        raise ConfigError(f"--{name} {flags[name]!r}.", expected="A whole number.") from error


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"--{name} {value!r}.", expected="A number.")
    return number
