"""What each draft format can say, and what each engine reads of it (engine-spec 1.2 to 1.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench.checkpoint.conventions import parse_version
from specbench.checkpoint.id_rules import NESTED, TOP, IdRule
from specbench.errors import CheckpointError
from specbench.modelspec import DraftSpec

FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
LAST, LATENT, HEADS, BIASES, FC_BIAS, WINDOW = (
    "use_aux_hidden_state: false",
    "latent attention",
    "normed query and key heads",
    "attention_bias",
    "fc.bias",
    "a sliding window",
)
ONE_LAYER = (0, 5, 23)  # SGLang before it reads one draft layer and none of the extra norms
QWEN3_LAYER = (0, 32)  # vLLM from here reads normed heads (vllm #43132); 0.16 does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a format can say: norm flags and other parts, where ids stand, and whose they are."""

    flags: tuple[str, ...]
    parts: tuple[str, ...]
    key: str
    code: str
    nested_layer: bool = False

    @property
    def says(self) -> frozenset[str]:
        """Everything that it can express."""
        return frozenset((*self.flags, *self.parts))


# specforge stands for the flat config that every engine reads: a part can be written in it that
# SpecForge itself does not train. Normed heads need the class of the layer named, which
# speculators alone does; it has no class with latent attention.
LAYOUTS: Mapping[str, Layout] = {
    "safeailab": Layout(flags=(), parts=(), key="", code="safeailab"),
    "specforge": Layout(
        flags=("fc_norm", "norm_output"),
        parts=(LAST, LATENT, BIASES, FC_BIAS, WINDOW),
        key=NESTED,
        code="specforge",
    ),
    "nvidia": Layout(flags=(), parts=(LAST, LATENT, BIASES), key=NESTED, code="nvidia"),
    "speculators": Layout(
        flags=FLAGS,
        parts=(HEADS, BIASES, WINDOW),
        key=TOP,
        code="speculators==0.5",
        nested_layer=True,
    ),
}


def parts_of(spec: DraftSpec) -> list[str]:
    """What a draft has beyond the classic one, by the names that ``Layout.says`` uses."""
    has = {
        LAST: spec.last_hidden,
        LATENT: spec.latent is not None,
        HEADS: spec.head_norm,
        BIASES: spec.qkv_bias,
        FC_BIAS: spec.fc_bias,
        WINDOW: spec.context_limit is not None,
    }
    flags = [name for name in FLAGS if getattr(spec, name)]
    return flags + [name for name, there in has.items() if there]


def check_layout(spec: DraftSpec, layout: str) -> Layout:
    """The format called ``layout``, when it can say everything of ``spec``.

    Raises:
        CheckpointError: it cannot; names what is lost, and the formats that can say it.
    """
    place, parts = LAYOUTS[layout], parts_of(spec)
    lost = [part for part in parts if part not in place.says]
    if lost:
        able = [name for name, other in LAYOUTS.items() if other.says.issuperset(parts)]
        raise CheckpointError(
            f"{layout} files cannot express {', '.join(lost)}.",
            expected=f"A format that can: {', '.join(able) or 'none can express all of it'}.",
        )
    return place


def check_engine(spec: DraftSpec, rule: IdRule, engine: str, place: Layout) -> None:
    """What the engine itself ignores or cannot read (engine-spec 1.4, 1.6).

    Raises:
        CheckpointError: names what it would leave out.
    """
    version = parse_version(engine.partition("==")[2] or "0")
    wrong: list[str] = []
    if rule.code == "sglang":
        wrong = _unread_by_sglang(spec, version, place)
    elif rule.code == "vllm":
        wrong = [FC_BIAS] if spec.fc_bias else []
        wrong += [HEADS] if spec.head_norm and version < QWEN3_LAYER else []
    if wrong:
        raise CheckpointError(
            f"{engine} does not read {', '.join(wrong)}, and would run the draft wrongly "
            "or not at all.",
            todo="Serve it with an engine that does.",
        )


def _unread_by_sglang(spec: DraftSpec, version: tuple[int, ...], place: Layout) -> list[str]:
    wrong = ["norm_before_residual"] if spec.norm_before_residual else []
    wrong += [part for part in parts_of(spec) if part in (HEADS, BIASES)]
    if place.nested_layer:
        wrong.append("the nested transformer_layer_config of speculators")
    if version < ONE_LAYER:
        wrong += [name for name in FLAGS[1:] if getattr(spec, name)]
        wrong += [f"{spec.n_layers} draft layers"] if spec.n_layers > 1 else []
    return wrong


def engine_notes(spec: DraftSpec, rule: IdRule) -> tuple[str, ...]:
    """What has to be said at launch, since the engine does not read it from the files."""
    if rule.code == "sglang" and spec.context_limit is not None:
        return (
            f"SGLang does not read the draft's window of {spec.context_limit} tokens; say "
            "--speculative-draft-window-size where its version has it",
        )
    return ()
