"""``specbench selftest``: the load generator against a server that takes no time."""

from __future__ import annotations

import argparse
from typing import Any

from specbench.errors import ConfigError
from specbench.screen import new_console


def add_parser(subparsers: Any) -> None:
    """The flags of ``specbench selftest``."""
    parser = subparsers.add_parser(
        "selftest",
        help="measure how fast this client itself can be, so that it is not mistaken for a server",
        description="Drive the load generator against a prepared server that computes nothing, "
        "and print the client's ceiling: a run that comes near it measures the client.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--path",
        choices=("memory", "openai", "sglang"),
        default="openai",
        help="what is driven: the load generator alone (memory), or with one of the HTTP clients "
        "over loopback (default openai)",
    )
    parser.add_argument("--requests", type=int, default=200, metavar="N", help="default 200")
    parser.add_argument(
        "--concurrency", type=int, default=64, metavar="N", help="requests in flight (default 64)"
    )
    parser.add_argument(
        "--tokens", type=int, default=128, metavar="N", help="chunks of each request (default 128)"
    )
    parser.set_defaults(run=_selftest)


def _selftest(args: argparse.Namespace) -> int:
    import asyncio

    from specbench.load.selftest import self_test, verdict
    from specbench.run import remote_backend

    for name in ("requests", "concurrency", "tokens"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name} {getattr(args, name)}.", expected="At least 1.")
    connect = None
    if args.path != "memory":
        connect = lambda url: remote_backend(url, args.path, api_key=None)  # noqa: E731
    result = asyncio.run(
        self_test(connect, requests=args.requests, tokens=args.tokens, concurrency=args.concurrency)
    )
    console = new_console()
    for line in verdict(result):
        console.print(line, markup=False, soft_wrap=True)
    return 0
