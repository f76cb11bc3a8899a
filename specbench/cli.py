"""The command line: parses, calls, prints. Exit codes: 0 done, 1 a gate failed, 2 wrong use,
3 the run broke (what was measured is kept).
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from specbench import (
    __version__,
    compare_cli,
    convert_cli,
    dashboards_cli,
    doctor_cli,
    probe_cli,
    report_cli,
    selftest_cli,
)
from specbench.config import Arrival
from specbench.draft_flags import add_draft_flags
from specbench.errors import SpecbenchError
from specbench.prompts.datasets import SCHEMES
from specbench.screen import new_console
from specbench.verification import Verification


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. A SpecbenchError becomes one clear line."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = build_parser().parse_args(words)
    args.command_line = ("specbench", *words)
    _print_anything()
    errors = new_console(stderr=True, soft_wrap=True)
    try:
        return int(args.run(args))
    except SpecbenchError as error:
        errors.print(Text.assemble(("specbench: error:", "bold red"), f" {_printable(error)}"))
        return error.exit_code
    except KeyboardInterrupt:
        errors.print("specbench: interrupted before anything was measured.")
        return 3


def _print_anything() -> None:
    """A character that the terminal's encoding lacks is escaped; it must not end a run."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _printable(error: SpecbenchError) -> str:
    """The message; what no encoding has (a file name of other bytes) as escapes."""
    return str(error).encode(errors="backslashreplace").decode()


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="specbench",
        description="Benchmark and acceptance profiler for speculative decoding.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"specbench {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_sweep(subparsers)
    _add_serve(subparsers)
    for cli in (report_cli, selftest_cli, compare_cli, convert_cli, doctor_cli):
        cli.add_parser(subparsers)
    dashboards_cli.add_parser(subparsers)
    probe_cli.add_parser(subparsers)
    return parser


def _add_models(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models (neither flag: the shipped demo pair)")
    group.add_argument("--target", metavar="DIR", help="target checkpoint (safetensors)")
    group.add_argument("--draft", metavar="DIR", help="EAGLE-3 draft checkpoint (safetensors)")
    add_draft_flags(group)
    group.add_argument("--dtype", help="float32 (default on CPU), bfloat16, float16 or float64")
    group.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    group.add_argument("--threads", type=int, metavar="N", help="CPU threads of torch (default 1)")
    group.add_argument("--max-len", type=int, metavar="N", help="longest sequence (default 1024)")
    group.add_argument("--kernels", help="CPU forward: auto (default), native (compiled) or torch")
    group.add_argument("--tensor-parallel", type=int, metavar="N", help="ranks, one GPU each")
    group = parser.add_argument_group("verification of drafts at temperature > 0")
    group.add_argument(
        "--verification",
        choices=[method.value for method in Verification],
        help="target_only (default; chains and trees), or for chains: rejection, one_hot, block",
    )
    for name, what in (
        ("single", "accept a draft that the target gives at least this probability"),
        ("acc", "divide what the coin is held against by this"),
    ):
        group.add_argument(
            f"--threshold-{name}",
            type=float,
            metavar="P",
            help=f"target_only: {what} (default 1: exact; below 1 the output is lossy)",
        )


def _add_grid(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("grid (lists and ranges: 1,3,5 or 1..7; SGLang's meaning)")
    group.add_argument(
        "--num-steps", "--speculative-num-steps", metavar="LIST", help="draft depth; 0: baseline"
    )
    group.add_argument(
        "--topk", "--speculative-eagle-topk", metavar="LIST", help="branches per node; 1: chain"
    )
    group.add_argument(
        "--num-draft-tokens",
        "--speculative-num-draft-tokens",
        metavar="LIST",
        help="nodes sent to verification, root counted; a chain takes num_steps + 1",
    )
    group.add_argument(
        "--batch-size", metavar="LIST", help="requests in flight (default: the profile's)"
    )
    group.add_argument("--temperature", metavar="LIST", help="0 is greedy (default 0)")
    group.add_argument(
        "--as-engine",
        choices=("sglang", "vllm"),
        help="resolve conflicts as this engine would, and list each override",
    )


def _add_load(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("workload and load")
    group.add_argument(
        "--workload",
        action="append",
        metavar="NAME",
        help=f"shipped workload, folder or KIND:PATH, repeatable (kinds: {', '.join(SCHEMES)})",
    )
    group.add_argument("--requests", type=int, metavar="N", help="prompts per arm")
    group.add_argument("--blocks", type=int, metavar="N", help="interleaved blocks per arm")
    group.add_argument("--max-tokens", type=int, metavar="N", help="most new tokens per request")
    group.add_argument("--seed", type=int, metavar="N", help="seed of sampling and arrivals")
    group.add_argument(
        "--request-rate", type=float, metavar="R", help="open loop: requests per second"
    )
    group.add_argument(
        "--arrival", choices=[a.value for a in Arrival], help="open loop: spacing (default poisson)"
    )
    group.add_argument(
        "--burstiness", type=float, metavar="S", help="shape of gamma gaps; below 1 is burstier"
    )
    group.add_argument("--warmup", type=int, metavar="N", help="warm-up requests per arm")
    group.add_argument("--timeout", type=float, metavar="S", help="per request (default 600 s)")
    group.add_argument(
        "--noise-floor",
        action="store_true",
        default=None,
        help="measure plain decoding twice: what an A/A comparison shows here, and the control of "
        "the losslessness verdict",
    )


def _add_metrics(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Prometheus (docs/metrics.md lists the series)")
    group.add_argument(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="serve /metrics there while the sweep runs (host 127.0.0.1; port 0: a free one)",
    )
    group.add_argument(
        "--metrics-linger",
        type=float,
        metavar="S",
        help="wait at most S seconds at the end for a scrape of the final values (default: twice "
        "the scrape interval that was seen, or 5)",
    )
    group.add_argument(
        "--metrics-push",
        metavar="URL",
        help="at the end push the metrics to a Pushgateway, or by remote write to .../api/v1/write",
    )
    group.add_argument(
        "--grafana",
        metavar="URL",
        help="mark the run and its points there as annotations (token in GRAFANA_TOKEN)",
    )


def _add_sweep(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "sweep",
        help="measure a grid of points and write summary.csv, report.md and plots",
        description="Measure every point of a grid against its baseline in interleaved blocks.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--profile",
        choices=("quick", "full"),
        help="defaults for grid and size: quick (default, two minutes; batch sizes 1,4) or full",
    )
    parser.add_argument(
        "--explain",
        metavar="K,B,N",
        help="draw what num_steps, topk, num_draft_tokens draft, verify and emit, and exit",
    )
    _add_grid(parser)
    _add_models(parser)
    group = parser.add_argument_group("outside server (instead of models)")
    group.add_argument("--server", metavar="URL", help="address of a running server")
    group.add_argument("--baseline-server", metavar="URL", help="one without speculation beside it")
    group.add_argument(
        "--backend", choices=("auto", "openai", "sglang"), help="how to talk to it (default auto)"
    )
    group.add_argument(
        "--model", metavar="NAME", help="which of its models (default: the only one)"
    )
    _add_load(parser)
    report_cli.add_judging(parser)
    _add_metrics(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", help="run directory (default runs/sweep-TIME)")
    group.add_argument(
        "--live",
        action="store_true",
        default=None,
        help="draw accept length, survival, step time and last outputs while it runs",
    )
    group.add_argument(
        "--resume", action="store_true", help="go on with the sweep that --out DIR holds"
    )
    group.add_argument(
        "--gpu-interval",
        type=float,
        metavar="S",
        help="seconds between samples of the GPUs that are used (default 0.2; 0: none)",
    )
    parser.set_defaults(run=_sweep)


def _add_serve(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="serve the in-process engine over HTTP (OpenAI and SGLang-native routes)",
        description="Serve the in-process engine; binds to 127.0.0.1 unless told otherwise.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file; flags win over it")
    _add_models(parser)
    parser.add_argument(
        "--num-steps", "--speculative-num-steps", type=int, metavar="N", help="default 3"
    )
    parser.add_argument("--topk", "--speculative-eagle-topk", type=int, metavar="N")
    parser.add_argument(
        "--num-draft-tokens", "--speculative-num-draft-tokens", type=int, metavar="N"
    )
    parser.add_argument("--batch-size", type=int, metavar="N", help="default 4")
    parser.add_argument(
        "--prefill-chunk",
        type=int,
        metavar="N",
        help="prompt tokens read between two steps of the running requests (default 256)",
    )
    parser.add_argument(
        "--prefix-reuse",
        action="store_true",
        default=None,
        help="start prompts from what earlier requests left in the cache (default: off)",
    )
    parser.add_argument("--host", help="default 127.0.0.1; beyond loopback a key is required")
    parser.add_argument("--port", type=int, help="default 8000; 0 takes a free port")
    parser.add_argument("--served-model-name", metavar="NAME", help="default: the target's folder")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), help="default info"
    )
    parser.add_argument(
        "--as-engine", choices=("sglang", "vllm"), help="resolve conflicts as this engine would"
    )
    parser.set_defaults(run=_serve)


# Commands are imported when they run, so that --help and a wrong flag answer at once.


def _sweep(args: argparse.Namespace) -> int:
    from specbench import commands

    return commands.sweep(args, new_console())


def _serve(args: argparse.Namespace) -> int:
    from specbench import commands

    return commands.serve(args, new_console())


if __name__ == "__main__":
    sys.exit(main())
