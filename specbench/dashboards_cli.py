"""``specbench dashboards build|check|push``: the flags, and what each does."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from specbench.screen import new_console


def add_parser(subparsers: Any) -> None:
    """Declare the command and its three subcommands."""
    parser = subparsers.add_parser(
        "dashboards",
        help="build, check and push the Grafana boards",
        description="The Grafana boards: live run, sweep, compare.",
        allow_abbrev=False,
    )
    inner = parser.add_subparsers(dest="dashboards_command", required=True, metavar="ACTION")
    build = inner.add_parser(
        "build",
        help="write the boards, and Grafana's alerts where the folder has rules.yml",
        allow_abbrev=False,
    )
    build.add_argument("--out", default="dashboards", metavar="DIR", help="default dashboards")
    build.set_defaults(run=_build)
    check = inner.add_parser(
        "check",
        help="hold every metric and label of boards and rules against the catalogue",
        allow_abbrev=False,
    )
    check.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="boards (.json), rules (.yml) or folders (default: this version's boards)",
    )
    check.set_defaults(run=_check)
    _add_push(inner)


def _add_push(inner: Any) -> None:
    push = inner.add_parser(
        "push",
        help="put folder, data source and boards into a running Grafana",
        description="The token stands in the environment, in GRAFANA_TOKEN.",
        allow_abbrev=False,
    )
    push.add_argument("--url", required=True, metavar="URL", help="Grafana's root")
    push.add_argument("--folder", default="specbench", metavar="TITLE", help="default specbench")
    push.add_argument(
        "--prometheus",
        metavar="URL",
        help="make a data source for this Prometheus (as Grafana sees it)",
    )
    push.add_argument(
        "--overwrite", action="store_true", help="replace boards of the same uid that differ"
    )
    push.add_argument("--timeout", type=float, default=10.0, metavar="S", help="default 10")
    push.set_defaults(run=_push)


def _build(args: argparse.Namespace) -> int:
    from specbench.dashboards.build import write

    for path in write(Path(args.out)):
        _say(str(path))
    return 0


def _check(args: argparse.Namespace) -> int:
    from specbench.dashboards.build import boards
    from specbench.dashboards.check import check_board, check_paths, known_names

    if args.paths:
        found = check_paths([Path(path) for path in args.paths])
    else:
        known = known_names()
        found = tuple(line for board in boards().values() for line in check_board(board, known))
    for line in found:
        _say(line)
    if not found:
        _say("Every metric and label is in the catalogue.")
    return 1 if found else 0


def _push(args: argparse.Namespace) -> int:
    from specbench.dashboards.build import boards
    from specbench.dashboards.grafana import Grafana, token_from_environment
    from specbench.dashboards.push import push

    grafana = Grafana(args.url, token_from_environment(), timeout_s=args.timeout)
    push(
        grafana,
        boards(),
        folder=args.folder,
        prometheus=args.prometheus,
        overwrite=args.overwrite,
        say=_say,
    )
    return 0


def _say(line: str) -> None:
    new_console(soft_wrap=True).print(line, markup=False)
