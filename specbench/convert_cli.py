"""``specbench convert``: a draft written again in another format, for a named engine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from specbench.checkpoint.layouts import LAYOUTS
from specbench.draft_flags import OFFSETS, add_draft_flags
from specbench.screen import new_console


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "convert",
        help="write a draft in another format, with the layer ids that an engine reads rightly",
        description="Read a draft strictly and write it again: same tensors byte for byte, "
        "config.json in another format, layer ids as the named engine and version reads them; a "
        "direct vocabulary map is written as offsets.",
        allow_abbrev=False,
    )
    parser.add_argument("--draft", required=True, metavar="DIR", help="the draft to read")
    parser.add_argument(
        "--target", required=True, metavar="DIR", help="its target (config.json and headers)"
    )
    parser.add_argument("--to", required=True, choices=sorted(LAYOUTS), help="format to write")
    parser.add_argument(
        "--for",
        dest="engine",
        default="",
        metavar="ENGINE==VERSION",
        help="who will read it, such as sglang==0.5.23 (default: the format's own code base)",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="a new folder")
    add_draft_flags(parser)
    parser.add_argument(
        "--drop-ids", action="store_true", help="write no layer ids; they must be said at loading"
    )
    parser.set_defaults(run=_convert)


def _convert(args: argparse.Namespace) -> int:
    from specbench.checkpoint import read_draft, read_target
    from specbench.checkpoint.conventions import find, parse_ids, versions
    from specbench.checkpoint.id_coverage import unverified
    from specbench.checkpoint.writers import write_draft

    target, target_folder = read_target(args.target)
    draft, folder = read_draft(
        args.draft,
        target,
        capture_ids=parse_ids(args.capture_ids or "", "--capture-ids") or None,
        capture_default=bool(args.capture_default),
        d2t=args.d2t or OFFSETS,
    )
    arch = str((target_folder.config.get("architectures") or [""])[0])
    rule = find(args.engine or LAYOUTS[args.to].code, arch)
    written = write_draft(
        draft,
        folder,
        Path(args.out),
        layout=args.to,
        engine=args.engine,
        arch=arch,
        layers=target.n_layers,
        drop_ids=args.drop_ids,
    )
    say = new_console(soft_wrap=True)
    lines = [f"{args.out}: {args.to}, physical layers {list(draft.capture_physical)}"]
    if written.ids:
        reader = args.engine or f"{rule.code} {versions(rule)}"
        lines.append(f"{written.key} = {list(written.ids)}, as {reader} reads them")
        lines.append(f"the rule taken is {rule.code} {versions(rule)}: {rule.shift.value}")
    if args.engine and (doubt := unverified(args.engine)):
        lines.append(f"note: {doubt}")
    lines += [f"note: {note}" for note in written.notes]
    lines += [f"note: {caveat.text}" for caveat in draft.caveats]
    for line in lines:
        say.print(line, markup=False)
    return 0
