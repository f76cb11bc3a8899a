"""Train an EAGLE-3 draft for a Llama target on text that the target writes itself.

    python tools/train_draft.py --target models/smollm2 --out models/draft --work build/smollm2

Needs the ``engine`` extra, and no network. Set OMP_WAIT_POLICY=PASSIVE.

Stages, in order; each reads what the one before left in ``--work``, so ``--stage`` (a comma list)
resumes anywhere, and the long ones go on from their last shard or checkpoint:

    texts     the target answers the prompts, part greedily, part at a temperature: texts.jsonl
    features  the engine's own forward over these texts; the captured streams go to disk
    draft     training-time-test unroll on those features
    export    through the writer of ``specbench convert``, for a named format and engine
    probe     ``specbench probe`` on prompts that were not trained on
    card      README.md with data, losses and the probe's figures

Prompts are workloads by name, files as ``specbench --workload`` reads them, or ``templates:N``:
the templates that the demo pair is trained on. Prompts of ``--evaluate`` are never trained on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

import torch

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from specbench.checkpoint import read_target
from specbench.checkpoint.conventions import find, parse_ids, to_written
from specbench.checkpoint.layouts import LAYOUTS
from specbench.errors import ConfigError
from tools.command import named_stages, run
from tools.draft_training.cards import stage_card, stage_probe
from tools.draft_training.features import captured_layers, stage_features
from tools.draft_training.plan import Plan
from tools.draft_training.texts import made_from, stage_texts
from tools.draft_training.train import check_out, draft_shape, stage_draft, stage_export

STAGES: dict[str, Callable[[Plan], None]] = {
    "texts": stage_texts,
    "features": stage_features,
    "draft": stage_draft,
    "export": stage_export,
    "probe": stage_probe,
    "card": stage_card,
}
NUMBERS = {
    "replies": "prompts to answer, the first of a shuffled order; 0 is all",
    "draft_vocab": "tokens that the draft can say",
    "max_tokens": "longest training reply",
    "longest_prompt": "longest training prompt in tokens",
    "greedy_share": "share of replies that are greedy",
    "temperature": "of the other replies",
    "batch": "texts generated together",
    "shard": "texts saved together",
    "steps": "training steps",
    "rows": "texts a training step",
    "ttt_steps": "training-time-test steps",
    "from_layer": "layer of the target that the draft begins as; -1 is the last",
    "muon_rate": "peak learning rate of matrices",
    "adam_rate": "peak learning rate of the head and norms",
    "seed": "of prompts, replies and training",
    "threads": "CPU threads; one runs the compiled forward",
    "evaluate_requests": "prompts of the probe",
    "evaluate_tokens": "tokens of each of its replies",
    "evaluate_steps": "draft steps of the probe",
}


def parser() -> argparse.ArgumentParser:
    """Command line."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parse.add_argument("--target", type=Path, required=True, help="a Hugging Face folder")
    parse.add_argument("--out", type=Path, required=True, help="receives the draft")
    parse.add_argument("--work", type=Path, required=True, help="texts, features, checkpoints, log")
    parse.add_argument(
        "--stage", default="all", help=f"all, or some of {','.join(STAGES)}, in that order"
    )
    parse.add_argument("--prompts", action="append", metavar="NAME", help="may be repeated")
    parse.add_argument("--evaluate", default="default", metavar="NAME", help="workload to probe on")
    parse.add_argument("--capture", default="", metavar="K,K,K", help="physical feature indices")
    parse.add_argument("--layout", choices=sorted(LAYOUTS), default=Plan.layout, help="format")
    parse.add_argument("--for", dest="engine", default="", metavar="ENGINE==VERSION")
    defaults = {field.name: field.default for field in fields(Plan)}
    for name, text in NUMBERS.items():
        value = defaults[name]
        option = "--" + name.replace("_", "-")
        parse.add_argument(option, type=type(value), default=value, help=f"{text} ({value})")
    return parse


def make_plan(args: argparse.Namespace) -> Plan:
    """The settings that the command line asks for."""
    return Plan(
        target=args.target,
        out=args.out,
        work=args.work,
        prompts=tuple(args.prompts or ("templates:600",)),
        evaluate=args.evaluate,
        capture=parse_ids(args.capture, "--capture") or (),
        layout=args.layout,
        engine=args.engine,
        **{name: getattr(args, name) for name in NUMBERS},
    )


def stages(text: str) -> list[str]:
    """The stages of ``--stage``.

    Raises:
        ConfigError: one is unknown, or they do not stand in the order in which they build on each
            other.
    """
    names = list(STAGES) if text == "all" else named_stages(text, STAGES)
    ordered = [name for name in STAGES if name in names]
    if names != ordered:
        raise ConfigError(
            f"--stage {text} is not in the order in which stages build on each other.",
            expected=f"--stage {','.join(ordered)}.",
        )
    return names


def check(plan: Plan, names: Sequence[str]) -> None:
    """Refuse now what a stage would refuse after hours of others.

    Raises:
        UsageError: the target, the layers, the vocabulary, the engine or the folder to write for;
            or the working folder belongs to another target or to other texts.
    """
    target, folder = read_target(plan.target)
    draft_shape(plan, target)
    if "export" in names:
        check_out(plan)
        arch = str((folder.config.get("architectures") or [""])[0])
        rule = find(plan.engine or LAYOUTS[plan.layout].code, arch)
        if LAYOUTS[plan.layout].key:
            to_written(captured_layers(plan, target.n_layers), rule, target.n_layers)
    plan.check_made_from(made_from(plan))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stages asked for; the exit code is as ``specbench`` has it."""
    args = parser().parse_args(argv)
    return run("train_draft", lambda: _train(args))


def _train(args: argparse.Namespace) -> None:
    names, plan = stages(args.stage), make_plan(args)
    check(plan, names)
    torch.set_num_threads(plan.threads)
    plan.work.mkdir(parents=True, exist_ok=True)
    for name in names:
        STAGES[name](plan)


if __name__ == "__main__":
    sys.exit(main())
