"""What servers count of speculation, read from a Prometheus page (docs/doctor.md lists them).

Counters run since the server started; with an earlier page the difference of the two is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from specbench.collectors import catalogue
from specbench.doctor.symptoms_data import Observed, from_counts, from_gauge
from specbench.doctor.symptoms_page import Counters
from specbench.errors import ConfigError, OutputError

_SERVERS = (("vllm:", "vLLM"), ("sglang:", "SGLang"), ("llamacpp:", "llama.cpp"))
_OWN_STEPS = catalogue.VERIFY_STEPS.name.removesuffix("_total")
_OWN_ACCEPTED = catalogue.ACCEPTED_AT.name.removesuffix("_total")
_ASKED, _OTHER = "the one asked for", "; --point takes another"


def read_metrics(place: str, since: str | None = None, point: str | None = None) -> Observed:
    """What a server counted; gauges are used only where it has no counters.

    ``point`` chooses one of those that specbench's own page counts.

    Raises:
        OutputError: the page holds no counter of speculation, or a page lacks one that is needed.
        ConfigError: counters that fell since the earlier page, nothing drafted, or no such point.
        UnreachableError: nothing answers.
    """
    counters = Counters.read(place, since)
    if point is not None and not counters.has(_OWN_STEPS):
        raise ConfigError(f"--point {point}, and {place} counts no points.", todo="Leave it out.")
    for read in (partial(_own, asked=point), _by_position, _sglang, _totals):
        seen = read(counters)
        if seen is not None:
            return seen
    for prefix, server in _SERVERS:
        if counters.any_of(prefix):
            raise OutputError(
                f"{place} is of a {server} server, and holds no counter of speculation.",
                todo="Is it the one that speculates? Launched without, a server counts none.",
            )
    raise OutputError(
        f"{place} holds no counter of speculation.",
        expected="specbench_verify_steps_total, vllm:spec_decode_*, sglang:spec_*, "
        "trtllm_spec_decode_* or llamacpp:spec_*.",
        todo="Is speculation on, and is this the server's metrics page?",
    )


def _own(counters: Counters, asked: str | None) -> Observed | None:
    """specbench's own page: the point asked for, else the deepest chain that ran."""
    if not counters.has(_OWN_STEPS):
        return None
    points = sorted(counters.values(_OWN_STEPS, "point", arm="spec"))
    if not points:
        raise OutputError(
            f"{counters.place} counts plain decoding alone.",
            expected=f'{_OWN_STEPS}_total with arm="spec".',
            todo="Ask the page of a sweep or server that drafts.",
        )
    steps = {p: counters.gained(_OWN_STEPS, arm="spec", point=p) for p in points}
    point, why = _deepest(counters, steps) if asked is None else (_asked(asked, points), _ASKED)
    among = f" of {len(points)}, {why}" if len(points) > 1 else ""
    source = f"{counters.place} (specbench, point {point}{among})"
    accepted, unplaced = _accepted(counters, point)
    if not unplaced or steps[point] < 1:
        return from_counts(source, steps[point], accepted)
    total = sum(accepted) + unplaced
    seen = from_gauge(source, 1 + total / steps[point], steps[point])
    return replace(seen, basis=f"{seen.basis}: the server that was measured gives sums alone")


def _deepest(counters: Counters, steps: Mapping[str, int]) -> tuple[str, str]:
    """The point to judge of those that ran, and why: a shallow draft has no tail to show.

    Chains go before trees, deep ones before shallow ones, then those of more verify steps. A page
    that does not say what its points are gives the one with the most verify steps.
    """
    ran = {point: count for point, count in steps.items() if count} or steps
    shapes = {point: found for point in ran if (found := _shape(counters, point)) is not None}
    if len(shapes) < len(ran):
        return max(ran, key=lambda p: ran[p]), f"the one with the most verify steps{_OTHER}"
    best = max(ran, key=lambda p: (shapes[p], ran[p]))
    return best, f"the deepest {'chain' if shapes[best][0] else 'tree'}{_OTHER}"


def _shape(counters: Counters, point: str) -> tuple[bool, int] | None:
    """Whether a point is a chain, and its depth; None where the page does not tell."""
    said = [
        counters.values(catalogue.POINT_INFO.name, label, arm="spec", point=point)
        for label in ("topk", "num_steps")
    ]
    if not all(len(values) == 1 and min(values).isdecimal() for values in said):
        return None
    topk, depth = (int(min(values)) for values in said)
    return topk == 1, depth


def _asked(name: str, points: list[str]) -> str:
    """The point of that label, or the one whose spec (``k3`` of ``k3.bs4``) is so called."""
    found = [p for p in points if name in (p, p.partition(".")[0])]
    if name in points:
        return name
    if len(found) != 1:
        raise ConfigError(f"--point {name}.", expected=f"One of {', '.join(found or points)}.")
    return found[0]


def _accepted(counters: Counters, point: str) -> tuple[list[int], int]:
    """Drafts accepted at positions 1, 2, ..., and those whose position nobody knows."""
    labels = {"arm": "spec", "point": point}
    known = counters.values(_OWN_ACCEPTED, "position", **labels)
    places = _places(counters, _OWN_ACCEPTED, {p for p in known if p.isdigit()}, 1, labels)
    accepted = [counters.gained(_OWN_ACCEPTED, **labels, position=p) for p in places]
    rest = sorted(p for p in known if not p.isdigit())
    unplaced = sum(counters.gained(_OWN_ACCEPTED, **labels, position=p) for p in rest)
    if not known:
        raise counters.missing(_OWN_ACCEPTED, **labels)
    return accepted, unplaced


def _places(
    counters: Counters, name: str, known: set[str], first: int, labels: dict[str, str]
) -> list[str]:
    """Positions in order, from ``first`` on and without a gap."""
    places = sorted(known, key=int)
    for expected, place in enumerate(places, start=first):
        if int(place) != expected:
            raise counters.missing(name, **labels, position=str(expected))
    return places


def _by_position(counters: Counters) -> Observed | None:
    """vLLM, and llama.cpp which took its names: counts by draft position, from 0."""
    for prefix, server in (("vllm:", "vLLM"), ("llamacpp:", "llama.cpp")):
        if counters.any_of(f"{prefix}spec_decode_"):
            return _spec_decode(
                counters, f"{prefix}spec_decode_num_", f"{counters.place} ({server})"
            )
    return None


def _spec_decode(counters: Counters, name: str, source: str) -> Observed:
    drafts, per, total = f"{name}drafts", f"{name}accepted_tokens_per_pos", f"{name}accepted_tokens"
    steps = counters.gained(drafts)
    given = per if counters.has(per) else total
    counters.check_beside(drafts, given, "engine")
    if given == per:
        places = _places(counters, per, counters.values(per, "position"), 0, {})
        return from_counts(source, steps, [counters.gained(per, position=p) for p in places])
    kept = counters.gained(total)
    if steps < 1:
        return from_counts(source, steps, [])
    return from_gauge(source, 1 + kept / steps, steps)


def _sglang(counters: Counters) -> Observed | None:
    """(generated - requests) / verifies; the gauge, one per rank, covers one log interval only."""
    verifies, gauge = "sglang:spec_verify_calls", "sglang:spec_accept_length"
    place = counters.place
    if counters.has(verifies):
        steps = counters.gained(verifies)
        made = counters.gained("sglang:generation_tokens")
        requests = counters.gained("sglang:num_requests")
        if steps < 1:
            raise ConfigError(f"{place}: no verify step was counted.", todo="Send requests first.")
        return from_gauge(f"{place} (SGLang counters)", (made - requests) / steps, steps)
    values = counters.gauges(gauge)
    if not values:
        if counters.any_of("sglang:spec_"):
            raise counters.missing(verifies)
        return None
    if counters.since:
        raise OutputError(
            f"{place} lacks {verifies}_total, so --since has nothing to be subtracted from.",
            expected=f"Counters; {gauge} is a gauge of the last log interval.",
            todo="Leave --since out to judge that interval.",
        )
    mean = sum(values) / len(values)
    return from_gauge(f"{place} (SGLang gauge of the last log interval)", mean)


def _totals(counters: Counters) -> Observed | None:
    """Drafted and accepted without a count of steps: a share, and no accept length."""
    place = counters.place
    for prefix, drafted, accepted in (
        ("trtllm_spec_decode_", "num_draft_tokens", "num_accepted_tokens"),
        ("llamacpp:spec_tokens_", "drafted", "accepted"),
    ):
        if counters.any_of(prefix):
            given, kept = (counters.gained(f"{prefix}{name}") for name in (drafted, accepted))
            if given < 1:
                raise ConfigError(f"{place}: nothing was drafted.", todo="Send requests first.")
            if kept > given:
                raise ConfigError(
                    f"{place}: {kept} tokens accepted of {given} drafted.",
                    expected="At most those that were drafted.",
                    todo="Are both pages the server's own, and of the same start?",
                )
            return Observed(
                source=place,
                basis=f"{kept} of {given} drafted tokens accepted ({100 * kept / given:.0f} %); "
                "without a count of steps there is no accept length",
                accept_length=None,
            )
    return None
