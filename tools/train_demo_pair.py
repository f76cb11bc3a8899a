"""Train the demo pair: a small Llama target and its one-layer EAGLE-3 draft.

    python tools/train_demo_pair.py --out specbench/demo --work build/demo

Needs torch, tokenizers, safetensors and the Debian packages r-cran-janeaustenr, sqlite3-doc and
python3.11-doc for the documents (``--no-documents`` does without them). Set
OMP_WAIT_POLICY=PASSIVE.

Stages, in order; each reads what the one before left in ``--work``, so ``--stage`` (a comma list)
resumes anywhere, and the two long ones go on from their last checkpoint. Minutes are those of two
cores with AVX2 and no bf16 instructions (bf16 autocast is slower than fp32 there), for the shipped
sizes and ``--compile``; the whole run took 80, and 94 when the shipped pair was made beside other
work:

    corpus       0.3  11 MB of text: templates of five categories, novels, manuals, library code
    tokenizer    0.2  byte-level BPE of 4,096; 2.9 M tokens packed into rows of 512
    target      42    660 steps of 4,096 tokens: 7.0 M parameters, Muon and AdamW
    tune        11    90 steps on answers, with unlikelihood of the target's own repeated 4-grams
    policy       2.4  the target's own answers to 1,500 training prompts
    draft        7.7  300 steps with six training-time-test steps on that text
    policy-again 3.7  answers to 3,000 more prompts, half of them spliced from two others
    draft-again 12    520 steps on those, from the draft so far
    export       0.1  target/ and draft/ in fp16
    evaluate     0.5  accept lengths, accuracy and loops on workloads/default
    cards        0.1  README.md of both

``--grow PAIR --layers N`` makes a pair with a deeper target from one that is there, by stages
corpus, tokenizer, grow, tune, policy-again, draft-again, export and evaluate.

Everything is seeded and step counts are fixed; float sums differ between machines and thread
counts, so weights are pinned by the sha256 in the cards. For a larger pair: ``--layers``,
``--hidden``, ``--inner``, ``--heads``, ``--kv-heads``, ``--capture`` and ``--steps-scale``.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from specbench.checkpoint.conventions import parse_ids
from tools.command import named_stages, run
from tools.demo_pair.cards import stage_cards
from tools.demo_pair.distil import stage_draft, stage_draft_again
from tools.demo_pair.evaluate import stage_evaluate
from tools.demo_pair.export import stage_export
from tools.demo_pair.grow import grown_shape, stage_grow
from tools.demo_pair.model import Shape
from tools.demo_pair.plan import Plan
from tools.demo_pair.policy import stage_policy, stage_policy_again
from tools.demo_pair.pretrain import stage_corpus, stage_target, stage_tokenizer
from tools.demo_pair.tune import stage_tune

STAGES: dict[str, Callable[[Plan], None]] = {
    "corpus": stage_corpus,
    "tokenizer": stage_tokenizer,
    "grow": stage_grow,
    "target": stage_target,
    "tune": stage_tune,
    "policy": stage_policy,
    "draft": stage_draft,
    "policy-again": stage_policy_again,
    "draft-again": stage_draft_again,
    "export": stage_export,
    "evaluate": stage_evaluate,
    "cards": stage_cards,
}
ANEW = tuple(name for name in STAGES if name != "grow")
GROWN = (
    "corpus",
    "tokenizer",
    "grow",
    "tune",
    "policy-again",
    "draft-again",
    "export",
    "evaluate",
)
SMOKE_SHAPE = Shape(
    vocab=600,
    hidden=32,
    layers=4,
    heads=2,
    kv_heads=1,
    head_dim=16,
    inner=64,
    capture=(1, 2, 3),
    draft_vocab=200,
)


def parser() -> argparse.ArgumentParser:
    """Command line."""
    shape = Shape()
    parse = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parse.add_argument("--out", type=Path, required=True, help="receives target/ and draft/")
    parse.add_argument("--work", type=Path, required=True, help="text, checkpoints and the log")
    parse.add_argument("--stage", default="all", help=f"all, or some of {','.join(STAGES)}")
    parse.add_argument("--steps-scale", type=float, default=1.0, help="multiplies every step count")
    parse.add_argument("--policy-prompts", type=int, default=Plan.policy_prompts)
    parse.add_argument("--again-prompts", type=int, default=Plan.again_prompts)
    parse.add_argument("--draft-steps", type=int, default=Plan.draft_steps, help="before scaling")
    parse.add_argument("--again-steps", type=int, default=Plan.again_steps, help="before scaling")
    parse.add_argument("--threads", type=int, default=2)
    parse.add_argument("--seed", type=int, default=Plan.seed)
    parse.add_argument("--compile", action="store_true", help="torch.compile the target's training")
    parse.add_argument("--no-documents", action="store_true", help="templates only")
    parse.add_argument("--grow", type=Path, help="a pair (target/, draft/) to make deeper")
    parse.add_argument(
        "--tune-rate",
        type=float,
        help="multiplies the learning rates of stage tune (default: 1, with --grow 0.1)",
    )
    parse.add_argument("--smoke", action="store_true", help="a tiny pair in seconds")
    for name in ("layers", "hidden", "inner", "heads", "kv_heads", "head_dim", "draft_vocab"):
        parse.add_argument("--" + name.replace("_", "-"), type=int, default=getattr(shape, name))
    parse.add_argument("--capture", default="2,4,7", help="physical feature indices")
    return parse


def tune_rate(args: argparse.Namespace) -> float:
    """What is asked for; a grown target moves gently, so that the draft at hand still fits it."""
    if args.tune_rate is not None:
        return float(args.tune_rate)
    return 1.0 if args.grow is None else 0.1


def smoke_plan(args: argparse.Namespace) -> Plan:
    """A tiny pair in seconds: counts and sizes are fixed."""
    return Plan(
        out=args.out,
        work=args.work,
        shape=SMOKE_SHAPE if args.grow is None else grown_shape(args.grow, args.layers),
        grow=args.grow,
        seed=args.seed,
        characters=60_000,
        documents=False,
        length=128,
        rows=4,
        target_steps=12,
        round_steps=1,
        tune_prompts=8,
        tune_rate=tune_rate(args),
        policy_prompts=20,
        policy_tokens=24,
        draft_steps=6,
        again_prompts=20,
        again_steps=4,
        draft_rows=4,
        validation=4,
    )


def make_plan(args: argparse.Namespace) -> Plan:
    """The settings that the command line asks for."""
    if args.smoke:
        return smoke_plan(args)
    names = ("layers", "hidden", "inner", "heads", "kv_heads", "head_dim", "draft_vocab")
    capture = parse_ids(args.capture, "--capture") or ()
    shape = (
        Shape(capture=capture, **{name: getattr(args, name) for name in names})
        if args.grow is None
        else grown_shape(args.grow, args.layers)
    )
    plan = Plan(
        out=args.out,
        work=args.work,
        shape=shape,
        seed=args.seed,
        compile=args.compile,
        documents=not args.no_documents,
        policy_prompts=args.policy_prompts,
        again_prompts=args.again_prompts,
        draft_steps=args.draft_steps,
        again_steps=args.again_steps,
        grow=args.grow,
        tune_rate=tune_rate(args),
    )
    steps = {
        name: max(1, round(getattr(plan, name) * args.steps_scale))
        for name in ("target_steps", "round_steps", "draft_steps", "again_steps")
    }
    return dataclasses.replace(plan, **steps)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stages asked for; the exit code is as ``specbench`` has it."""
    args = parser().parse_args(argv)
    return run("train_demo_pair", lambda: _train(args))


def _train(args: argparse.Namespace) -> None:
    whole = ANEW if args.grow is None else GROWN
    names = whole if args.stage == "all" else named_stages(args.stage, STAGES)
    plan = make_plan(args)
    plan.check_made_from(plan.made_from())
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    for name in names:
        STAGES[name](plan)


if __name__ == "__main__":
    sys.exit(main())
