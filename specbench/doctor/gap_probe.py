"""The parts of the train-to-serve gap, measured on a pair (engine-spec 11.3, 11.5, 11.6).

All at the first position. On the target's own greedy text: accuracy within the draft's vocabulary
(as speculators counts), over all tokens (as EAGLE and SpecForge count), at the positions where a
step of a server begins, and the engine's own first position. A step begins where the last one
ended, mostly at a token that the draft got wrong, so its positions are harder than the average
one: that is no fault, and no training accuracy shows it. On training data: the same accuracy with
the data's replies in place of the target's. Under the training template: accuracy on the text that
the target writes then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from specbench.checkpoint.chat_template import SETTINGS, read_template
from specbench.config import EngineConfig, SpecConfig
from specbench.doctor.gap import Framework, Measured
from specbench.doctor.gap_data import Reply
from specbench.doctor.parity_setup import Setup, engines
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_scores import UNKNOWN, Scores, walk
from specbench.engine.probe_text import Sample, greedy_texts, steps_of
from specbench.engine.text import TextCodec
from specbench.errors import CheckpointError, WorkloadError
from specbench.request import Request, SamplingParams

CONFIG = EngineConfig(dtype="float32", kernels="torch")
MOST_REPLY = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class GapProbe:
    """What was measured; ``accept_length`` is the engine's on these requests, ``told`` says on how
    much text each figure rests."""

    measured: Measured
    accept_length: float
    told: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapPair:
    """A pair loaded for the gap."""

    pair: ModelPair
    draft: ProbeDraft

    @classmethod
    def load(
        cls,
        target: Path | str,
        draft: Path | str,
        capture_ids: tuple[int, ...] | None = None,
        *,
        capture_default: bool = False,
        d2t: str = "offsets",
    ) -> GapPair:
        """Arguments and errors as ``ModelPair.load``; a draft that the probe reads is needed."""
        config = replace(CONFIG, d2t=d2t)
        pair = ModelPair.load(target, draft, config, capture_ids, capture_default)
        own = ProbeDraft.load(
            pair, draft, capture_ids=capture_ids, capture_default=capture_default, d2t=d2t
        )
        return cls(pair=pair, draft=own)


def measure_gap(
    loaded: GapPair,
    requests: Sequence[Request],
    framework: Framework,
    *,
    num_steps: int,
    training: Sequence[Reply] = (),
    template: Path | None = None,
) -> GapProbe:
    """Measure every part that the inputs allow.

    Args:
        loaded: the pair.
        requests: prompts; the target's own replies to them are the text.
        framework: whose definition of accuracy the training data is scored by.
        num_steps: K of the served chain.
        training: replies of the training data; none leaves off-policy text unmeasured.
        template: the chat template of training, where it is not the target's.

    Raises:
        WorkloadError: no requests, or no reply has two tokens.
        CheckpointError: the template does not compile.
    """
    captured, scores = _scored(loaded, requests, num_steps)
    walked = [step for text in walk(captured, scores, num_steps) for step in text]
    first, length, steps = _served(loaded.pair, captured, num_steps)
    told = [
        f"{len(scores.hit)} positions of {len(captured.samples)} replies of the target; "
        f"{len(walked)} steps offline, {steps} of the engine"
    ]
    off_policy, other, more = _training(loaded, requests, framework, training, template)
    measured = Measured(
        restricted=float(scores.known_hit[:, 0].mean()),
        full=float(scores.hit[:, 0].mean()),
        template=other,
        unknown=float((scores.rank[:, 0] == UNKNOWN).mean()),
        engine=first,
        off_policy=off_policy,
        at_steps=float(np.mean([step.accepted > 0 for step in walked])),
    )
    return GapProbe(measured=measured, accept_length=length, told=(*told, *more))


def _training(
    loaded: GapPair,
    requests: Sequence[Request],
    framework: Framework,
    training: Sequence[Reply],
    template: Path | None,
) -> tuple[float | None, float | None, list[str]]:
    """Accuracy on the training's replies, and on the target's own under its template."""
    off_policy, other, told = None, None, []
    if template is not None:
        codec = other_codec(loaded.pair, template)
        loaded = replace(loaded, pair=replace(loaded.pair, codec=codec))
    if training:
        data = _data_scores(loaded, training)
        hits = data.known_hit if framework.ignores_unknown else data.hit
        off_policy = float(hits[:, 0].mean())
        told.append(f"{len(hits)} positions of {len(training)} training replies")
    if template is not None:
        _, under = _scored(loaded, requests, 1)
        other = float(under.hit[:, 0].mean())
        told.append(f"{len(under.hit)} positions under {template.name}")
    return off_policy, other, told


def _scored(loaded: GapPair, requests: Sequence[Request], steps: int) -> tuple[Capture, Scores]:
    """The draft, wired as its files claim, on the target's own replies."""
    texts = greedy_texts(loaded.pair, requests, past=steps + 1)
    return _on(loaded, texts, steps)


def _on(loaded: GapPair, texts: Sequence[Sample], steps: int) -> tuple[Capture, Scores]:
    claimed = loaded.draft.claimed
    captured = capture(
        loaded.pair,
        texts,
        vocab_ids=loaded.draft.target_ids(),
        layers=claimed.slots,
        taps=(claimed.tap,),
    )
    return captured, loaded.draft.score(captured, claimed, steps)


def _data_scores(loaded: GapPair, training: Sequence[Reply]) -> Scores:
    """The draft on replies that somebody else wrote: only step 1 is exact there."""
    pair, texts = loaded.pair, []
    for number, reply in enumerate(training):
        asked = Request(request_id=f"train-{number}", messages=reply.messages)
        prompt = pair.codec.prompt_ids(asked)
        said = pair.codec.encode(reply.text)[:MOST_REPLY]
        if len(said) > 2:
            texts.append(
                Sample(
                    request_id=asked.request_id,
                    category="",
                    tokens=(*prompt, *said),
                    prompt_len=len(prompt),
                    output_len=len(said) - 1,
                )
            )
    if not texts:
        raise WorkloadError("no training reply has three tokens.")
    return _on(loaded, texts, 1)[1]


@torch.inference_mode()
def _served(pair: ModelPair, captured: Capture, num_steps: int) -> tuple[float, float, int]:
    """The engine's first position and accept length on the captured prompts, and its steps."""
    longest = max(len(sample.tokens) for sample in captured.samples) + num_steps + 1
    engine = engines(pair)(Setup(spec=SpecConfig.chain(num_steps), max_len=longest))
    accepted: list[int] = []
    for sample in captured.samples:
        request = Request(
            request_id=sample.request_id,
            prompt_ids=sample.tokens[: sample.prompt_len],
            sampling=SamplingParams(max_tokens=sample.output_len, ignore_eos=True),
        )
        accepted += [trace.accepted for trace in steps_of(engine, request)[0]]
    if not accepted:
        raise WorkloadError("no reply has two tokens, so no step was made.")
    return float(np.mean([a > 0 for a in accepted])), 1 + float(np.mean(accepted)), len(accepted)


def other_codec(pair: ModelPair, template: Path) -> TextCodec:
    """The target's tokenizer with the chat template in ``template``, a tokenizer_config.json or a
    file of its own.

    Raises:
        CheckpointError: the file cannot be read, or does not compile.
    """
    folder = Path(pair.inputs["path:target"])
    found = read_template(template.parent) if template.name == SETTINGS else None
    try:
        source = template.read_text(encoding="utf-8") if found is None else found.source
    except (OSError, UnicodeError) as error:
        raise CheckpointError(f"{template} cannot be read: {error}.") from error
    with tempfile.TemporaryDirectory() as held:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if (folder / name).is_file():
                (Path(held) / name).write_bytes((folder / name).read_bytes())
        (Path(held) / "chat_template.jinja").write_text(source, encoding="utf-8")
        return TextCodec(Path(held))


def shipped_template(target: Path, draft: Path) -> Path | None:
    """The draft folder's own chat template, where it has one that is not the target's."""
    own, theirs = read_template(draft), read_template(target)
    if own is None or (theirs is not None and own.source == theirs.source):
        return None
    return own.path
