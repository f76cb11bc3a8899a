"""``specbench probe``: accuracy, survival and accept length of a draft, side by side.

Three things to do: score on the target's own text, dump the target's features (``--dump``), and
score on features that were dumped here or for a draft's training elsewhere (``--features``).
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbench import demo
from specbench.checkpoint.conventions import parse_ids
from specbench.config import EngineConfig, SpecConfig
from specbench.draft_flags import OFFSETS, add_draft_flags
from specbench.errors import ConfigError
from specbench.journal import write_atomically
from specbench.modelspec import as_record
from specbench.probe_figures import all_figures, show_figures
from specbench.request import Request, SamplingParams
from specbench.screen import new_console
from specbench.workload import load_workload

if TYPE_CHECKING:
    from specbench.engine.pair import ModelPair
    from specbench.engine.probe_store import Index

_NODES = 16
_MOST_SHARD_MB = 2048
_SCORES = ("topk", "num_draft_tokens", "positions", "json")
_TEXTS = ("workload", "max_tokens")
_STORES: tuple[str, ...] = ("layers", "layout", "shard_mb", "resume")
_OF_DRAFT = ("capture_ids", "capture_default", "d2t")
_DEFAULTS: Mapping[str, Any] = {
    "draft": str(demo.DRAFT),
    "workload": "default",
    "requests": 30,
    "max_tokens": 48,
    "num_steps": 5,
    "topk": 4,
    "positions": 20_000,
    "dtype": "float32",
    "shard_mb": 256,
    "layout": "specbench",
}


def add_parser(subparsers: Any) -> None:
    """Declare ``probe``."""
    parser = subparsers.add_parser(
        "probe",
        help="a draft's accuracy, survival and accept length on the target's own text",
        description="Score a draft at every position of the target's own greedy replies, or of "
        "stored features. Needs no server and times nothing.",
        allow_abbrev=False,
    )
    parser.add_argument("--target", default=str(demo.TARGET), metavar="DIR", help="target folder")
    parser.add_argument("--draft", metavar="DIR", help="draft folder")
    add_draft_flags(parser)
    for name, metavar, what in (
        ("requests", "N", "most requests or stored texts"),
        ("num-steps", "K", "draft steps; with --dump, tokens to go on for after each reply"),
        ("topk", "B", "branches of the tree; 1 grows none"),
        ("num-draft-tokens", "N", f"nodes of the tree, root counted (default: up to {_NODES})"),
        ("max-tokens", "N", "tokens a reply"),
        ("positions", "N", "most positions to score"),
    ):
        parser.add_argument(f"--{name}", type=int, metavar=metavar, help=_told(name, what))
    parser.add_argument("--workload", metavar="NAME", help=_told("workload", "prompts"))
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64", "bfloat16", "float16"),
        help=_told("dtype", "exact figures need 32 bits or more; fewer only with --dump"),
    )
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    _add_stores(parser)
    parser.set_defaults(run=_probe)


def _add_stores(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("stored features (docs/probe.md)")
    group.add_argument(
        "--features",
        metavar="PATH",
        help="score on stored features: a folder that --dump wrote, or safetensors files of "
        "speculators or SpecForge; the target reads 64 tokens to see that they are its own",
    )
    group.add_argument(
        "--dump", metavar="DIR", help="write tokens, masks, features and last states there"
    )
    group.add_argument(
        "--layers", metavar="K,K,K", help="physical layers to dump (default: all, or the draft's)"
    )
    group.add_argument(
        "--layout",
        choices=("specbench", "speculators", "specforge"),
        help=_told("layout", "whose files a dump looks like"),
    )
    group.add_argument(
        "--shard-mb", type=int, metavar="N", help=_told("shard_mb", "largest file of a dump")
    )
    group.add_argument(
        "--resume", action="store_true", default=None, help="go on with a dump that was cut off"
    )


def _told(name: str, what: str) -> str:
    default = _DEFAULTS.get(name.replace("-", "_"))
    return what if default is None else f"{what} (default {default})"


def _probe(args: argparse.Namespace) -> int:
    _check(args)
    if args.dump is not None and _keeps_own_layers(args) and args.draft is not None:
        note = f"note: --draft {args.draft} is not read: the dump's layers do not come from it"
        new_console(soft_wrap=True).print(note, markup=False)
    again = _score_words(args)
    for name, value in _DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.dump is not None:
        _dump(args)
        told = f"Score a draft on them: {again}"
        new_console(soft_wrap=True).print(told, markup=False)
        return 0
    facts = measured(args)
    if args.json:
        write_atomically(Path(args.json), json.dumps(facts, indent=2) + "\n")
    show_figures(facts)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Numbers are positive, and no flag is given that would be ignored."""
    for flag in ("requests", "max_tokens", "num_steps", "topk", "positions", "shard_mb"):
        value = getattr(args, flag)
        if value is not None and value < 1:
            raise ConfigError(f"{_flag(flag)} {value}.", expected="1 or more.")
    if args.dump is not None and args.features is not None:
        raise ConfigError("--dump and --features are given together.", expected="One of them.")
    if args.capture_ids and args.capture_default:
        raise ConfigError("--capture-ids and --capture-default are both given.", todo="Drop one.")
    mode, useless = "", _STORES
    if args.dump is not None:
        mode, useless = "--dump", _SCORES
        if _keeps_own_layers(args):
            mode, useless = "--dump, which reads no draft here", (*_SCORES, *_OF_DRAFT)
    elif args.features is not None:
        mode, useless = "--features", (*_STORES, *_TEXTS)
    given = [_flag(name) for name in useless if getattr(args, name) is not None]
    if given:
        where = f"with {mode}" if mode else "without --dump"
        raise ConfigError(f"{', '.join(given)}: has no meaning {where}.", todo="Leave it out.")
    if args.dump is None and args.dtype in ("bfloat16", "float16"):
        raise ConfigError(f"--dtype {args.dtype} flips close calls.", expected="float32 or more.")
    if args.shard_mb is not None and args.shard_mb > _MOST_SHARD_MB:
        raise ConfigError(f"--shard-mb {args.shard_mb}.", expected=f"At most {_MOST_SHARD_MB}.")


def _keeps_own_layers(args: argparse.Namespace) -> bool:
    """Whether a dump keeps all layers or those of ``--layers``, and not those of a draft."""
    return bool(args.layers) or args.layout in (None, _DEFAULTS["layout"])


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """The figures as plain data, ``all`` first, then every category."""
    from specbench.engine.probe import probe, probe_stored
    from specbench.engine.probe_draft import ProbeDraft

    tree = tree_of(args.num_steps, args.topk, args.num_draft_tokens)
    pair = _load(args, draft=True)
    ids, as_default = _capture(args)
    flags = {"capture_ids": ids, "capture_default": as_default, "d2t": args.d2t or OFFSETS}
    draft = ProbeDraft.load(pair, args.draft, **flags)
    bounds = {"steps": args.num_steps, "positions": args.positions, "tree": tree}
    if args.features is None:
        result = probe(pair, draft, _requests(args), **bounds)
    else:
        path = Path(args.features)
        result = probe_stored(pair, draft, path, requests=args.requests, **bounds)
    return {
        "target": args.target,
        "draft": args.draft,
        "draft_spec": as_record(draft.spec),
        "workload": args.workload if args.features is None else None,
        "features": args.features,
        "dtype": args.dtype,
        **all_figures(result),
    }


def tree_of(steps: int, topk: int, nodes: int | None) -> SpecConfig | None:
    """The tree to grow; None for one branch, which is the chain.

    Raises:
        ConfigError: the three numbers do not fit together.

    >>> tree_of(5, 4, None).point_id, tree_of(1, 4, None).point_id, tree_of(5, 1, None)
    ('k5b4n16', 'k1b4n5', None)
    """
    if topk == 1:
        if nodes not in (None, steps + 1):
            raise ConfigError(
                f"--topk 1 drafts a chain of {steps}, but --num-draft-tokens is {nodes}.",
                todo=f"Leave it out, or give {steps + 1}.",
            )
        return None
    most = 1 + topk + (steps - 1) * topk * topk
    asked = min(_NODES, most) if nodes is None else nodes
    return SpecConfig(num_steps=steps, topk=topk, num_draft_tokens=asked)


def _capture(args: argparse.Namespace) -> tuple[tuple[int, ...] | None, bool]:
    return parse_ids(args.capture_ids or "", "--capture-ids") or None, bool(args.capture_default)


def _load(args: argparse.Namespace, *, draft: bool) -> ModelPair:
    from specbench.engine.pair import ModelPair

    config = EngineConfig(dtype=args.dtype, kernels="torch", d2t=args.d2t or OFFSETS)
    return ModelPair.load(args.target, args.draft if draft else None, config, *_capture(args))


def _requests(args: argparse.Namespace) -> tuple[Request, ...]:
    sampling = SamplingParams(max_tokens=args.max_tokens)
    return tuple(load_workload(args.workload).requests(args.requests, sampling))


def _dump(args: argparse.Namespace) -> None:
    from specbench.engine.probe_dump import Dump, dump
    from specbench.engine.probe_store import Layout

    layout, layers = Layout(args.layout), parse_ids(args.layers or "", "--layers")
    pair = _load(args, draft=not _keeps_own_layers(args))
    if pair.draft_spec is not None:
        layers = pair.draft_spec.capture_physical
    out = new_console()
    index = dump(
        pair,
        _requests(args),
        Dump(
            folder=Path(args.dump),
            layers=layers or tuple(range(pair.target_spec.n_layers + 1)),
            past=args.num_steps,
            layout=layout,
            shard_bytes=args.shard_mb * 1_000_000,
            resume=bool(args.resume),
        ),
        lambda done, texts: out.print(f"dumped {done} of {texts} texts", markup=False),
    )
    out.print(_dumped(args.dump, index), markup=False)


def _dumped(folder: str, index: Index) -> str:
    size = sum(index.shards.values())
    return (
        f"{_counted(index.texts, 'text')}, {_counted(len(index.shards), 'file')}, "
        f"{size / 1e6:.1f} MB in {folder}: "
        f"physical layers {list(index.layers)}, {index.dtype}, layout {index.layout}."
    )


def _score_words(args: argparse.Namespace) -> str:
    """The command that scores a dump, with the pair as it was given; no draft: the reader's own."""
    words = ["--features", args.dump or ""]
    target, draft = args.target, args.draft
    if target != str(demo.TARGET) or draft is not None:
        words = ["--target", target, "--draft", draft or "DRAFT", *words]
    for name in ("capture_ids", "d2t", "num_steps"):
        value = getattr(args, name)
        words += [] if value is None else [_flag(name), str(value)]
    words += ["--capture-default"] if args.capture_default else []
    return f"specbench probe {shlex.join(words)}"


def _counted(number: int, name: str) -> str:
    return f"{number} {name}" + ("" if number == 1 else "s")
