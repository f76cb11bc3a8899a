"""What a server says of itself: which program it is, and which point of speculation it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from specbench.backends.http import HttpSession
from specbench.backends.speculation import positive
from specbench.backends.traffic import vllm_positions
from specbench.config import SpecConfig, load_strict
from specbench.errors import BackendError, ConfigError
from specbench.estimate import Caveat, Severity
from specbench.trace import Evidence
from specbench.verification import lossy_caveat

T = TypeVar("T")
OURS, SGLANG, VLLM, LLAMACPP = "specbench", "sglang", "vllm", "llama.cpp"

# What each program can give per request at best; whether it does depends on its flags.
_BEST = {
    OURS: Evidence.STEPS,
    SGLANG: Evidence.HISTOGRAM,
    VLLM: Evidence.HISTOGRAM,
    LLAMACPP: Evidence.HISTOGRAM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerClaims:
    """A server's own words. ``server`` is empty and ``spec`` None where it did not say.

    ``algorithm`` is how it says that it speculates, also where it names no point (n-grams).
    ``batch_size`` is how many requests it runs together; ``incremental`` is SGLang's switch that
    makes ``/generate`` stream pieces of text in place of the whole text so far. ``caveats`` follow
    from what it said.
    """

    server: str = ""
    version: str = ""
    target: str = ""
    draft: str = ""
    spec: SpecConfig | None = None
    algorithm: str = ""
    batch_size: int | None = None
    max_len: int | None = None
    incremental: bool = False
    caveats: tuple[Caveat, ...] = ()
    device: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def configurable(self) -> bool:
        """True for our own server, which switches points on request."""
        return self.server == OURS

    @property
    def best_evidence(self) -> Evidence:
        """The strongest evidence that this program can give."""
        return _BEST.get(self.server, Evidence.CHUNKS)

    def refused(self, asked: Sequence[SpecConfig]) -> dict[SpecConfig, str]:
        """Those of ``asked`` that the server cannot run, each with the reason.

        A server that does not say what it runs is taken to run the one speculative point that is
        asked, and then cannot decode plainly.

        Raises:
            ConfigError: several speculative points are asked of such a server.
        """
        if self.configurable:
            return {}
        if self.spec is not None:
            why = f"the server runs {_flags(self.spec)}, fixed at launch"
            return {spec: why for spec in asked if spec != self.spec}
        drafting = list(dict.fromkeys(spec for spec in asked if not spec.is_baseline))
        if len(drafting) > 1:
            raise ConfigError(
                f"{len(drafting)} points are asked of a server that does not say which it runs.",
                expected="The one that it was launched with.",
                todo="Name it, for example --num-steps 3 --topk 1.",
            )
        why = ""
        if self.algorithm:
            why = f"the server speculates ({self.algorithm})"
        elif drafting:
            why = "the server fixes its point at launch and was asked to speculate"
        return {spec: why for spec in asked if why and spec.is_baseline}

    def check(self, spec: SpecConfig, batch_size: int) -> tuple[str, ...]:
        """Reservations to print when ``spec`` is taken to be what the server runs.

        Raises:
            ConfigError: the server says that it runs another point; both are named.
        """
        notes: list[str] = []
        if self.spec is None:
            notes.append(self._trusted(spec))
        elif self.spec != spec:
            raise ConfigError(
                f"The server runs {_flags(self.spec)}, but {_flags(spec)} was asked.",
                expected=f"{self.server} fixes the point at launch.",
                todo="Ask for the point that it runs, or launch it again with the other one.",
            )
        if self.batch_size is not None and self.batch_size < batch_size:
            notes.append(
                f"the server runs at most {self.batch_size} requests together: "
                f"of {batch_size} in flight the others wait in its queue"
            )
        return tuple(notes)

    def _trusted(self, spec: SpecConfig) -> str:
        if spec.is_baseline:
            return "the server does not say whether it speculates: that it does not is trusted"
        what = f"how deep it drafts ({self.algorithm})" if self.algorithm else "what it drafts"
        return f"the server does not say {what}: {_flags(spec)} is taken on trust"


def _flags(spec: SpecConfig) -> str:
    return f"num_steps={spec.num_steps} topk={spec.topk} num_draft_tokens={spec.num_draft_tokens}"


async def ask_server(http: HttpSession) -> ServerClaims:
    """Find out which program answers and what it runs.

    Tried in order: ``/server_info`` (ours, SGLang; ``/get_server_info`` in older ones),
    ``/version`` (vLLM, whose ``/metrics`` has a counter for each draft position), ``/props``
    (llama.cpp, whose ``/slots`` say whether they speculate). A server that has none of them is
    unknown, which is no error.

    Raises:
        UnreachableError: nothing answers at the address.
        BackendError: it answers with an error, for instance because a key is missing.
    """
    for path in ("/server_info", "/get_server_info"):
        info = await _table_at(http, path)
        if OURS in info:
            return _ours(info)
        if "speculative_algorithm" in info:
            return _sglang(info)
    if version := _text(await _table_at(http, "/version"), "version"):
        return _vllm(version, await _optional(http.get_text("/metrics")) or "")
    props = await _table_at(http, "/props")
    if "default_generation_settings" in props:
        return _llamacpp(props, await _optional(http.get_json("/slots")))
    return ServerClaims()


async def _table_at(http: HttpSession, path: str) -> Mapping[str, Any]:
    """The object at ``path``; empty where the server has no such route."""
    answer = await http.get_json(path)
    return answer if isinstance(answer, Mapping) else {}


async def _optional(answer: Awaitable[T | None]) -> T | None:
    """A page that a server may keep to itself (llama.cpp's ``--no-slots``, a proxy's rules)."""
    try:
        return await answer
    except BackendError:
        return None


def _vllm(version: str, page: str) -> ServerClaims:
    """Drafts of vLLM are chains; its page has their length from the start, or no such counter."""
    length = vllm_positions(page)
    if length is None:
        return ServerClaims(server=VLLM, version=version)
    try:
        spec = SpecConfig.from_vllm(length)
    except ConfigError:
        spec = None
    algorithm = f"{length} tokens a draft" if length else ""
    return ServerClaims(server=VLLM, version=version, spec=spec, algorithm=algorithm)


def _llamacpp(props: Mapping[str, Any], slots: Any) -> ServerClaims:
    """Slots say whether they speculate, and not how deep; without them neither is known."""
    each = [slot.get("speculative") for slot in slots or () if isinstance(slot, Mapping)]
    settings = props["default_generation_settings"]
    return ServerClaims(
        server=LLAMACPP,
        version=_text(props, "build_info"),
        target=_text(props, "model_path"),
        spec=SpecConfig.baseline() if each and not any(v is not False for v in each) else None,
        algorithm="its slots draft" if any(v is True for v in each) else "",
        batch_size=_number(props, "total_slots"),
        max_len=_number(settings, "n_ctx") if isinstance(settings, Mapping) else None,
    )


def _ours(info: Mapping[str, Any]) -> ServerClaims:
    said = info[OURS]
    try:
        return ServerClaims(
            server=OURS,
            version=str(said["version"]),
            target=str(said["target"]),
            draft=str(said["draft"]),
            spec=SpecConfig(**said["spec"]),
            batch_size=positive(said["batch_size"]),
            max_len=positive(said["max_len"]),
            caveats=_caveats(said.get("caveats", ())),
            device=dict(said["device"]),
            inputs=dict(said["inputs"]),
        )
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise BackendError(
            f"The server's account of itself cannot be read: {error!r:.300}.",
            todo="Use the same version of specbench on both sides.",
        ) from None


def _sglang(info: Mapping[str, Any]) -> ServerClaims:
    return ServerClaims(
        server=SGLANG,
        version=_text(info, "version"),
        target=_text(info, "model_path"),
        draft=_text(info, "speculative_draft_model_path"),
        spec=_sglang_spec(info),
        algorithm=_text(info, "speculative_algorithm"),
        batch_size=_number(info, "max_running_requests"),
        max_len=_number(info, "context_length"),
        incremental=bool(info.get("incremental_streaming_output") or info.get("stream_output")),
        caveats=_sglang_caveats(info),
    )


def _sglang_spec(info: Mapping[str, Any]) -> SpecConfig | None:
    """The resolved point; None for numbers that are no EAGLE tree (ngram, block drafts)."""
    if not info["speculative_algorithm"]:
        return SpecConfig.baseline()
    try:
        return SpecConfig(
            num_steps=info["speculative_num_steps"],
            topk=info["speculative_eagle_topk"],
            num_draft_tokens=info["speculative_num_draft_tokens"],
        )
    except (KeyError, TypeError, ConfigError):
        return None


def _caveats(said: Any) -> tuple[Caveat, ...]:
    """What our own server holds against its figures; an older version did not say."""
    try:
        return tuple(load_strict(Caveat, one, source="/server_info: caveats") for one in said)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _sglang_caveats(info: Mapping[str, Any]) -> tuple[Caveat, ...]:
    """Thresholds of its target-only sampling: from 0 to 1, exact at 1 (engine-spec 6.2).

    A server that does not speculate has no use for them; one that does not name them has 1.
    """
    if not info["speculative_algorithm"]:
        return ()
    low, odd = [], []
    for name in ("threshold_single", "threshold_acc"):
        value = info.get(f"speculative_accept_{name}")
        if value is None or value == 1:
            continue
        if type(value) in (int, float) and value < 1:
            low.append(f"{name}={value:g}")
        else:
            odd.append(f"{name}={value!r:.80}")
    found = [lossy_caveat(f"{' and '.join(low)}, below 1")] if low else []
    if odd:
        text = f"the server's {' and '.join(odd)} cannot be read: its sampled output may be lossy"
        found.append(Caveat(code="server_settings", severity=Severity.WARNING, text=text))
    return tuple(found)


def _text(table: Mapping[str, Any], name: str) -> str:
    """A text field; empty where it is absent or null."""
    value = table.get(name)
    return "" if value is None else str(value)


def _number(table: Mapping[str, Any], name: str) -> int | None:
    """A length or a size; None where it is absent, null or something else."""
    return positive(table.get(name))
