"""Stage texts: the target answers the training prompts itself, shard by shard, in texts.jsonl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter as clock

from specbench.checkpoint import read_target
from specbench.config import EngineConfig, SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.engine.probe_text import Sample, outputs_of
from specbench.errors import OutputError
from specbench.request import Request
from tools.demo_pair.record import digest
from tools.draft_training.plan import Plan
from tools.draft_training.prompts import training_requests

FILE = "texts.jsonl"
SETTINGS = ("seed", "max_tokens", "longest_prompt", "greedy_share", "temperature")


def engine_config(plan: Plan, longest: int) -> EngineConfig:
    """float32 on as many threads as the plan has; one thread runs the compiled forward."""
    return EngineConfig(
        dtype="float32", threads=plan.threads, max_batch_size=plan.batch, max_len=longest
    )


def load_target(plan: Plan) -> ModelPair:
    """The target without a draft."""
    return ModelPair.load(plan.target, None, engine_config(plan, 64))


def made_from(plan: Plan) -> dict[str, str]:
    """What the texts, and so all later files of the working folder, follow from."""
    _, folder = read_target(plan.target)
    prompts = [
        f"{Path(name).name} (sha256 {digest([Path(name)])[:12]})" if Path(name).is_file() else name
        for name in plan.prompts
    ]
    return {
        "a target of sha256": digest((folder.path / "config.json", *folder.files))[:12],
        "--prompts": ", ".join(prompts),
        **{f"--{name.replace('_', '-')}": str(getattr(plan, name)) for name in SETTINGS},
    }


def stage_texts(plan: Plan) -> None:
    """Generate what is not yet there; a run that was stopped goes on behind its last shard."""
    begin, pair = clock(), load_target(plan)
    requests, facts = training_requests(plan, pair.codec)
    plan.keep_made_from(made_from(plan))
    done = {sample.request_id for sample in read_texts(plan)}
    waiting = [request for request in requests if request.request_id not in done]
    for at in range(0, len(waiting), plan.shard):
        samples = replies(pair, plan, waiting[at : at + plan.shard])
        with plan.path(FILE).open("a", encoding="utf-8") as file:
            file.write("".join(_line(sample) for sample in samples))
        made = sum(sample.output_len for sample in samples)
        told = f"{len(done) + at + len(samples)} of {len(requests)} replies"
        plan.log("texts", f"{told}, {made} tokens in this shard, {clock() - begin:.0f} s")
    texts = read_texts(plan)
    tokens = sum(sample.output_len for sample in texts)
    facts |= {"tokens": sum(len(sample.tokens) for sample in texts), "reply_tokens": tokens}
    if waiting:
        facts["minutes"] = (clock() - begin) / 60
    plan.record("texts", facts)


def replies(pair: ModelPair, plan: Plan, requests: Sequence[Request]) -> list[Sample]:
    """Replies up to and including the stop token, in the order of the requests."""
    prompts = [pair.codec.prompt_ids(request) for request in requests]
    longest = max(map(len, prompts)) + plan.max_tokens
    engine = Engine(pair, engine_config(plan, longest))
    engine.configure(SpecConfig.baseline(), plan.batch)
    return [
        Sample(
            request_id=request.request_id,
            category=request.category,
            tokens=(*prompt, *output),
            prompt_len=len(prompt),
            output_len=len(output),
        )
        for request, prompt, output in zip(
            requests, prompts, outputs_of(engine, requests), strict=True
        )
    ]


def read_texts(plan: Plan) -> list[Sample]:
    """The first ``replies`` of what was generated; a line that a stop cut off is dropped.

    Raises:
        OutputError: a line is none that the stage wrote.
    """
    path = plan.path(FILE)
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        path.write_text("".join(lines), encoding="utf-8")
    try:
        return [_sample(json.loads(line)) for line in lines][: plan.replies or None]
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise OutputError(
            f"{path} holds a line that is no text: {error}.",
            todo="Remove it, or take a new --work.",
        ) from error


def needed_texts(plan: Plan) -> list[Sample]:
    """``read_texts``, where there is one at least.

    Raises:
        OutputError: there is none.
    """
    texts = read_texts(plan)
    if not texts:
        plan.need(plan.path(FILE), "texts")
        raise OutputError(f"{plan.path(FILE)} is empty.", todo="Run --stage texts first.")
    return texts


def _line(sample: Sample) -> str:
    return (
        json.dumps(
            {
                "id": sample.request_id,
                "category": sample.category,
                "prompt": list(sample.tokens[: sample.prompt_len]),
                "reply": list(sample.tokens[sample.prompt_len :]),
            }
        )
        + "\n"
    )


def _sample(row: dict[str, object]) -> Sample:
    prompt, reply = row["prompt"], row["reply"]
    assert isinstance(prompt, list)
    assert isinstance(reply, list)
    return Sample(
        request_id=str(row["id"]),
        category=str(row["category"]),
        tokens=(*prompt, *reply),
        prompt_len=len(prompt),
        output_len=len(reply),
    )
