"""What a parity probe says: agreed, differs first there, or was not run; as a line or a finding."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.doctor.findings import Fact, Figure, Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """What a probe compares and whom its disagreement accuses; one fault may show in several
    probes, so ``score`` ranks first the probe whose ways have the fewest modules in them."""

    ways: str
    module: str
    remedy: str
    score: float


MODULES = {
    "speculation": Module(
        ways="greedy with and without speculation",
        module="verify and commit (engine/verify.py, engine/commit.py)",
        remedy="Greedy output must not depend on drafts. If parity.cache or parity.tree differs as "
        "well, begin there; else look at how drafts are checked and the bonus token is chosen.",
        score=0.85,
    ),
    "graphs": Module(
        ways="replayed graphs and eager",
        module="graph regions and their static buffers (engine/graphs.py)",
        remedy="Look at what was fixed at capture: layer ids, buffers that are not refilled, "
        "index capacity. Serving without graphs is the workaround.",
        score=0.92,
    ),
    "tree": Module(
        ways="a tree and each of its chains alone",
        module="tree masks, parents and positions (engine/tree.py, masks in runner.py, draft.py)",
        remedy="A node must see the committed text and its own ancestors, nothing else. Serving "
        "with topk 1 is the workaround.",
        score=0.95,
    ),
    "cache": Module(
        ways="caches after steps and after a fresh prefill",
        module="keep, compaction and the draft's extend (engine/kv_cache.py, engine/extend.py)",
        remedy="Rows that a verify left must be those that a prefill makes. Target rows accuse "
        "keep; draft rows accuse the extend or the features it was given.",
        score=0.94,
    ),
    "chunks": Module(
        ways="a prompt in chunks and whole",
        module="the border row of a prompt chunk (engine/prefill.py)",
        remedy="The last row of a chunk pairs its feature with the next prompt token, not with a "
        "guess of it. Prompts within one chunk are not affected.",
        score=0.93,
    ),
    "prefix": Module(
        ways="a prompt on a cached prefix and cold",
        module="the border row of a reused prefix (engine/lanes.py)",
        remedy="Row m - 1 of the draft depends on token m: reuse m - 1 rows of a common prefix of "
        "m tokens. Serving without a prefix cache is the workaround.",
        score=0.93,
    ),
    "batch": Module(
        ways="requests in a batch and alone",
        module="lanes and padding rows (engine/batch.py, engine/scheduler.py)",
        remedy="No row may read or write another lane; look at padding rows, and at what moves "
        "when a request leaves.",
        score=0.91,
    ),
    "ranks": Module(
        ways="several ranks and one",
        module="shards, reductions and agreement of ranks (tensor parallelism)",
        remedy="Features must be whole sums on every rank, and all ranks must commit the same "
        "tokens. Serving on one rank is the workaround.",
        score=0.93,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The first place where two ways part: ``position`` counts tokens of the request's text,
    ``step`` its verify steps (0 the prefill)."""

    request: str
    step: int
    position: int
    what: str

    def __str__(self) -> str:
        """In words."""
        return f"{self.what} (request {self.request}, step {self.step}, position {self.position})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Outcome of one probe.

    ``compared`` says what was held against what; ``largest`` is the largest relative difference of
    all rows of numbers (None: only tokens were compared) and ``tolerance`` what rounding may make,
    with ``why``. ``ties`` counts choices that parted where rounding decides. ``first`` is None when
    the two ways agree; ``not_run`` is the reason when there was nothing to compare.
    """

    name: str
    compared: str
    largest: float | None = None
    tolerance: float | None = None
    why: str = ""
    ties: int = 0
    first: Where | None = None
    not_run: str = ""
    cost_s: float = 0.0

    @property
    def agrees(self) -> bool | None:
        """None when it was not run."""
        return None if self.not_run else self.first is None

    def line(self) -> str:
        """One line for what agreed or was not run."""
        ways = MODULES[self.name].ways
        if self.not_run:
            return f"Parity of {ways}: not run: {self.not_run}."
        told = "" if self.largest is None else f", apart by {self.largest:.1g} at most"
        ties = f", {self.ties} at a tie" if self.ties else ""
        return f"Parity of {ways}: {self.compared}{told}{ties}."

    def finding(self) -> Finding | None:
        """An error where the two ways part; None else."""
        if self.first is None:
            return None
        known = MODULES[self.name]
        figures: dict[str, Figure] = {
            "step": self.first.step,
            "position": self.first.position,
            "ties": self.ties,
            "cost_s": self.cost_s,
        }
        facts = [
            Fact(text=str(self.first), where="first difference"),
            Fact(text=self.compared, where="compared"),
        ]
        if self.largest is not None and self.tolerance is not None:
            figures |= {"largest": self.largest, "tolerance": self.tolerance}
            facts.append(Fact(text=f"{self.tolerance:.1g}: {self.why}", where="tolerance"))
        facts.append(Fact(text=known.module, where="module"))
        return Finding(
            code=f"parity.{self.name}",
            severity=Severity.ERROR,
            title=f"{known.ways[0].upper()}{known.ways[1:]} disagree: {self.first}",
            evidence=tuple(facts),
            remedy=known.remedy,
            figures=figures,
            score=known.score,
        )
