"""Tensors against config and target: what kind of head it is, widths, norms, what is not read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from specbench.checkpoint.draft_layer import QWEN3_HEAD_DIM
from specbench.checkpoint.keys import attention_extras, layer_tensors
from specbench.checkpoint.latent import MARK
from specbench.doctor.checks_ids import claim_of
from specbench.doctor.checks_subject import Subject
from specbench.doctor.findings import Fact, Finding, Severity
from specbench.modelspec import AttentionSpec, LayerShape

Q = "midlayer.self_attn.q_proj.weight"
EXTRA = re.compile(r"fc_norm\.\d+\.weight|input_norm\.weight|embed_tokens\.weight|d2t|t2d|fc\.bias")
BIASES = re.compile(r"(midlayer|layers\.\d+)\.self_attn\.[qkvo]_proj\.bias")
UPPER = re.compile(r"layers\.[1-9]\d*\..+")
_ALWAYS = ("fc.weight", "midlayer.hidden_norm.weight", "norm.weight", "lm_head.weight")


def check_kind(subject: Subject) -> Iterator[Finding]:
    """Is it an EAGLE-3 draft at all, and for this target?"""
    draft, target = subject.draft, subject.target
    shape, hidden = draft.shape(Q), draft.integer("hidden_size")
    if draft.tensors is not None and MARK not in draft.tensors and shape is None:
        yield _kind("It holds no first EAGLE-3 layer", "no midlayer.* or layers.0.* attention")
    elif shape is not None and hidden and shape[-1] == hidden:
        yield _kind(
            "The head reads H values, as EAGLE-1 and 2 do; EAGLE-3 reads 2H", f"{Q} {list(shape)}"
        )
    wanted, own = draft.feature_width(), target.integer("hidden_size")
    if wanted is not None and own is not None and wanted != own:
        yield Finding(
            code="draft.target",
            severity=Severity.ERROR,
            title=f"The draft expects a target of width {wanted}, and this one has {own}",
            evidence=(
                Fact(text=str(wanted), where=draft.at("target_hidden_size or hidden_size")),
                Fact(text=str(own), where=target.at("hidden_size")),
            ),
            remedy="Give the target that it was trained for.",
            score=1.0,
        )


def _kind(title: str, seen: str) -> Finding:
    return Finding(
        code="draft.kind",
        severity=Severity.ERROR,
        title=title,
        evidence=(Fact(text=seen, where="draft tensors"),),
        remedy="Serve it with the algorithm it was made for, or give an EAGLE-3 draft.",
        score=1.0,
    )


def check_fc(subject: Subject) -> Iterator[Finding]:
    """fc's input against layers x width, and whether engines would leave fc out."""
    draft, claim = subject.draft, claim_of(subject)
    shape, width = draft.shape("fc.weight"), draft.feature_width() or 0
    hidden = draft.integer("hidden_size")
    if shape is None or len(shape) != 2 or not width:
        return
    if claim is not None and shape[1] != len(claim.physical) * width:
        fits = f"{shape[1] // width} layers" if shape[1] % width == 0 else "no whole number of them"
        yield Finding(
            code="fc.width",
            severity=Severity.ERROR,
            title=f"fc reads {shape[1]} values, and {len(claim.physical)} layers give "
            f"{len(claim.physical) * width}",
            evidence=(
                Fact(text=f"{list(shape)}: {fits} of width {width}", where="draft: fc.weight"),
                Fact(text=str(list(claim.physical)), where=claim.source),
            ),
            remedy="Name as many layers as it was trained on.",
            figures={"fc_in": shape[1], "layers": len(claim.physical), "width": width},
            score=1.0,
        )
    if shape[1] == hidden:
        yield Finding(
            code="fc.skipped",
            severity=Severity.WARNING,
            title=f"Joined features are as wide as the draft ({hidden}): engines would skip fc",
            evidence=(Fact(text=str(list(shape)), where="draft: fc.weight"),),
            remedy="Serve with an engine that applies fc by its presence.",
            score=0.8,
        )


def check_norms(subject: Subject) -> Iterator[Finding]:
    """Flags against the norms that are in the file."""
    draft, flags = subject.draft, subject.flags
    if draft.tensors is None:
        return
    for flag, pattern in (("norm_before_fc", r"input_norm\."), ("fc_norm", r"fc_norm\.")):
        there = [n for n in draft.tensors if re.match(pattern, n)]
        if there and flags.get(flag) is not True:
            yield _norm("norms.unused", f"The file holds {there[0]}, and {flag} is not true", flag,
                        f"Set {flag} to true if it was trained with it.")  # fmt: skip
        if flags.get(flag) is True and not there:
            yield _norm("norms.missing", f"{flag} is true, and the file holds no such norm", flag,
                        "Export the draft again with all tensors.")  # fmt: skip
    if subject.is_speculators and not isinstance(flags.get("norm_before_residual"), bool):
        yield _norm("norms.residual", "norm_before_residual is absent; its default differs by code",
                    "norm_before_residual", "Write what it was trained with.")  # fmt: skip


def _norm(code: str, title: str, flag: str, remedy: str) -> Finding:
    return Finding(
        code=code,
        severity=Severity.ERROR,
        title=title,
        evidence=(Fact(text=title, where=f"draft/config.json: {flag}"),),
        remedy=remedy,
        score=0.85,
    )


def check_tensors(subject: Subject) -> Iterator[Finding]:
    """Missing, mis-shaped and unread tensors; latent attention is left to the strict reader."""
    draft = subject.draft
    sizes = _sizes(subject)
    if draft.tensors is None or sizes is None or MARK in draft.tensors:
        return
    wanted = layer_tensors("midlayer", sizes, 2 * sizes.hidden) | _extras(subject, sizes)
    tied = subject.flags.get("tie_word_embeddings") is True
    plain = [n for n in _ALWAYS if not (tied and n == "lm_head.weight")]
    missing = sorted({*wanted, *plain} - set(draft.tensors))
    eagle = subject.flags.get("eagle_config")
    if isinstance(eagle, dict) and eagle.get("use_aux_hidden_state") is False:
        missing = [name for name in missing if name != "fc.weight"]
    unknown = [
        n
        for n in sorted(draft.tensors)
        if n not in wanted
        and n not in _ALWAYS
        and not EXTRA.fullmatch(n)
        and not UPPER.fullmatch(n)
    ]
    wrong = [
        f"{n} is {list(draft.tensors[n].shape)}, not {list(shape)}"
        for n, shape in sorted(wanted.items())
        if n in draft.tensors and draft.tensors[n].shape != shape
    ]
    for code, names, told in (
        ("tensors.missing", missing, "missing from the draft"),
        ("tensors.unknown", unknown, "in the draft and read by no EAGLE-3 forward"),
        ("tensors.shape", wrong, "of another shape than the config says"),
    ):
        if names:
            count = f"{len(names)} tensor{'s are' if len(names) > 1 else ' is'}"
            yield Finding(
                code=code,
                severity=Severity.ERROR,
                title=f"{count} {told}: {names[0]}",
                evidence=tuple(
                    Fact(text=n, where=f"{draft.path.name} tensors") for n in names[:16]
                ),
                remedy=_belong(subject, names),
                figures={"tensors": len(names)},
                score=0.9,
            )


def _belong(subject: Subject, names: list[str]) -> str:
    shape, draft = subject.draft.shape(Q), subject.draft
    heads = draft.integer("num_attention_heads")
    if " is " in names[0] and shape and heads and draft.integer("head_dim") is None:
        wide = shape[0] // heads
        if shape[0] % heads == 0 and wide == subject.target.integer("head_dim"):
            return (
                f"The config names no head_dim, and {wide} would fit, as the target has: write it."
            )
    if all(BIASES.fullmatch(name) for name in names):
        return "Set attention_bias to what it was trained with: engines go by it, not by the file."
    return "Check that config.json and weights belong together; export again."


def _extras(subject: Subject, sizes: LayerShape) -> dict[str, tuple[int, ...]]:
    """Biases and head norms of the first layer, by the rules of ``checkpoint.draft_layer``."""
    at, held = "midlayer.self_attn", subject.draft.tensors or {}
    bias = subject.draft.config.get("attention_bias") is True
    norm = _is_qwen3(subject) or f"{at}.q_norm.weight" in held
    out = bias and f"{at}.o_proj.bias" in held
    return attention_extras(at, sizes, AttentionSpec(qkv_bias=bias, out_bias=out, head_norm=norm))


def _is_qwen3(subject: Subject) -> bool:
    """Of speculators' nested table alone does model_type say what the draft's layer is."""
    nested = subject.draft.config is not subject.draft.whole
    return nested and subject.draft.config.get("model_type") == "qwen3"


def _sizes(subject: Subject) -> LayerShape | None:
    draft, default = subject.draft, QWEN3_HEAD_DIM if _is_qwen3(subject) else None
    hidden, heads = draft.integer("hidden_size"), draft.integer("num_attention_heads")
    inner = draft.integer("intermediate_size")
    if not hidden or not heads or not inner:
        return None
    return LayerShape(
        hidden=hidden,
        heads=heads,
        kv_heads=draft.integer("num_key_value_heads") or heads,
        head_dim=draft.integer("head_dim") or default or hidden // heads,
        inner=inner,
        eps=1e-6,
    )


def check_sharing(subject: Subject) -> Iterator[Finding]:
    """Own embedding and tied head."""
    draft = subject.draft
    if draft.shape("embed_tokens.weight") is not None:
        yield Finding(
            code="embed.own",
            severity=Severity.NOTE,
            title="The draft ships an embedding; SGLang uses the target's in its place",
            evidence=(Fact(text="present", where="draft: embed_tokens.weight"),),
            remedy="If it was trained (embed_requires_grad), serve with vLLM.",
            score=0.4,
        )
    vocab, own = draft.integer("vocab_size"), subject.flags.get("draft_vocab_size")
    if subject.flags.get("tie_word_embeddings") is True and own not in (None, vocab):
        yield Finding(
            code="head.tied",
            severity=Severity.ERROR,
            title=f"The head is tied to {vocab} embedding rows, and the draft has {own} tokens",
            evidence=(Fact(text="true", where=draft.at("tie_word_embeddings")),),
            remedy="Set tie_word_embeddings to false.",
            score=0.95,
        )
