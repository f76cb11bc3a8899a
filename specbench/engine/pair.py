"""A target and, if there is one, its draft: loaded once, checked against each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specbench.checkpoint import Folder, read_draft, read_target
from specbench.checkpoint.draft_names import by_canonical
from specbench.checkpoint.vocab_map import DIRECT
from specbench.config import EngineConfig
from specbench.engine.makers import WholeMaker
from specbench.engine.models.attention import attention_call
from specbench.engine.models.decoder import DecoderTarget
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.models.layers import Norm
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.models.pages import to_huge_pages
from specbench.engine.models.weights import load_tensors, offsets_of
from specbench.engine.native.choice import choose_kernels
from specbench.engine.text import TextCodec
from specbench.errors import CheckpointError, ConfigError
from specbench.modelspec import DraftSpec, TargetSpec

if TYPE_CHECKING:
    from specbench.engine.parallel import Ranks
    from specbench.engine.parallel_models import ShardedMaker

_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(slots=True, kw_only=True)
class ModelPair:
    """Weights, text codec and facts of a loaded pair; ``draft`` is None for a lone target.

    The specs are those of whole models; ``target.spec`` and ``draft.spec`` are this rank's share.
    """

    target: LlamaTarget | DecoderTarget
    draft: Eagle3Draft | None
    target_spec: TargetSpec
    draft_spec: DraftSpec | None
    codec: TextCodec
    device: torch.device
    dtype: torch.dtype
    device_facts: dict[str, str]
    inputs: dict[str, str]
    ranks: Ranks | None = None

    @classmethod
    def load(
        cls,
        target_dir: Path | str,
        draft_dir: Path | str | None,
        config: EngineConfig,
        capture_ids: tuple[int, ...] | None = None,
        capture_default: bool = False,
        maker: WholeMaker | ShardedMaker | None = None,
    ) -> ModelPair:
        """Read, check and load both checkpoints.

        Args:
            target_dir: folder of the target, with tokenizer.json.
            draft_dir: folder of the draft, or None for plain decoding only.
            config: device, dtype and threads; ``auto`` is resolved here and recorded.
            capture_ids: physical indices to capture when the draft names none.
            capture_default: capture 2, n//2 and n-3 then.
            maker: makes the models of one of several ranks; None makes whole ones.

        Raises:
            CheckpointError: a folder is not what it claims, or the two do not fit.
            ConfigError: no such device or dtype, a max_len beyond the rope table, or models that
                cannot be shared among the ranks.
        """
        spec, folder = read_target(target_dir)
        device, dtype = resolve_device(config, spec.dtype)
        codec = _fitting_codec(spec, folder, config)
        layers = capture_ids, capture_default
        draft_spec, draft_folder = _read_draft(draft_dir, spec, *layers, config.d2t)
        torch.set_num_threads(config.threads)
        maker = maker or WholeMaker(choose_kernels(config, spec, dtype, device))
        maker.check(spec, draft_spec)
        tensors = load_tensors(folder, dtype, device, maker.part(spec))
        target = maker.target(spec, tensors, draft_spec.capture_physical if draft_spec else ())
        rest = target, config, maker, tensors
        draft, draft_spec = _load_draft(draft_spec, draft_folder, *rest)
        to_huge_pages([*target.projections, *(draft.projections if draft else ())])
        return cls(
            target=target,
            draft=draft,
            target_spec=spec,
            draft_spec=draft_spec,
            codec=codec,
            device=device,
            dtype=dtype,
            device_facts=device_facts(device, dtype, packed=target.packed) | maker.facts,
            inputs=_inputs(folder, draft_folder, codec),
            ranks=maker.ranks,
        )


def _read_draft(
    draft_dir: Path | str | None,
    spec: TargetSpec,
    ids: tuple[int, ...] | None,
    default: bool,
    d2t: str,
) -> tuple[DraftSpec, Folder] | tuple[None, None]:
    if draft_dir is None:
        return None, None
    return read_draft(draft_dir, spec, capture_ids=ids, capture_default=default, d2t=d2t)


def _fitting_codec(spec: TargetSpec, folder: Folder, config: EngineConfig) -> TextCodec:
    """The tokenizer, once it and ``max_len`` are known to fit the target."""
    codec = TextCodec(folder.path)
    if config.max_len > spec.rope.max_position:
        raise ConfigError(
            f"max_len={config.max_len} exceeds the target's max_position_embeddings="
            f"{spec.rope.max_position}.",
            todo=f"Set max_len to at most {spec.rope.max_position}.",
        )
    if spec.context_limit is not None and config.max_len > spec.context_limit:
        raise ConfigError(
            f"max_len={config.max_len}, but {spec.family} is served up to "
            f"{spec.context_limit} tokens: beyond, its indexer chooses which columns a token "
            "sees, and that is not built.",
            todo=f"Set max_len to at most {spec.context_limit}.",
        )
    if codec.vocab_size > spec.vocab:
        raise CheckpointError(
            f"{folder.path}: the tokenizer has {codec.vocab_size} ids.",
            expected=f"At most vocab_size={spec.vocab}.",
        )
    return codec


def _load_draft(
    spec: DraftSpec | None,
    folder: Folder | None,
    target: LlamaTarget | DecoderTarget,
    config: EngineConfig,
    maker: WholeMaker | ShardedMaker,
    of_target: Mapping[str, Tensor],
) -> tuple[Eagle3Draft, DraftSpec] | tuple[None, None]:
    """The draft, and its spec with what was decided on the way; nothing without one."""
    if spec is None or folder is None:
        return None, None
    part = maker.part(spec)
    tensors = by_canonical(load_tensors(folder, target.dtype, target.device, part))
    if spec.d2t_policy == DIRECT:
        tensors["d2t"] = offsets_of(tensors["d2t"])
    own = tensors.get("embed_tokens.weight")
    shared = of_target["model.embed_tokens.weight"]
    spec, embedding = choose_embedding(spec, own, shared, config)
    weight = of_target.get("model.norm.weight")
    norm = None if weight is None else Norm(weight, target.spec.shape.eps)
    return maker.draft(spec, tensors, embedding, norm), spec


def resolve_device(config: EngineConfig, stored: str) -> tuple[torch.device, torch.dtype]:
    """Turn ``auto`` into a device and a dtype: CUDA in the stored dtype, else CPU in float32.

    Raises:
        ConfigError: a device that torch does not have.
    """
    cuda = torch.cuda.is_available()
    name = ("cuda" if cuda else "cpu") if config.device == "auto" else config.device
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device={name!r}: {error}.") from error
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not cuda):
        raise ConfigError(f"device={name!r} is not available here.", expected="cpu or cuda.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={name!r}, of {torch.cuda.device_count()} CUDA devices.",
            expected=f"cuda:0 to cuda:{torch.cuda.device_count() - 1}.",
        )
    dtype = config.dtype
    if dtype == "auto":
        dtype = stored if device.type == "cuda" else "float32"
    return device, _DTYPES[dtype]


def choose_embedding(
    spec: DraftSpec, own: Tensor | None, shared: Tensor, config: EngineConfig
) -> tuple[DraftSpec, Tensor]:
    """The draft's embedding and the reason (engine-spec 1.7): its own only when it differs."""
    if own is None:
        return spec, shared
    if own.shape == shared.shape and torch.equal(own, shared):
        return replace(spec, embed_policy="shared: equal to the draft's own"), shared
    if not config.force_share_embed:
        return replace(spec, embed_policy="own: it differs from the target's"), own
    if own.shape != shared.shape:
        raise ConfigError(
            f"force_share_embed, but the draft's embedding is {list(own.shape)} and the target's "
            f"{list(shared.shape)}."
        )
    return replace(spec, embed_policy="shared: force_share_embed, although its own differs"), shared


def device_facts(device: torch.device, dtype: torch.dtype, *, packed: bool) -> dict[str, str]:
    """What ran: device, compute capability (sm_XX), attention call, dtype, weights, threads.

    ``dtype`` is that of activations and sums. ``packed`` weights are those of a float16 file, kept
    as they are, for forwards of two rows and more (``models.layers.Projection``).
    """
    capability, name = "cpu", "cpu"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        capability, name = f"sm_{major}{minor}", torch.cuda.get_device_name(device)
    return {
        "device": name,
        "compute_capability": capability,
        "attention": attention_call(dtype),
        "dtype": str(dtype).removeprefix("torch."),
        "weights": "float16 as stored" if packed else str(dtype).removeprefix("torch."),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
    }


def _inputs(target: Folder, draft: Folder | None, codec: TextCodec) -> dict[str, str]:
    """Paths and sha256 of every file that was read."""
    files = {f"target/{p.name}": p for p in (target.path / "config.json", *target.files)}
    if draft is not None:
        files |= {f"draft/{p.name}": p for p in (draft.path / "config.json", *draft.files)}
    files |= {f"tokenizer/{p.name}": p for p in codec.files}
    found = {f"sha256:{name}": _sha256(path) for name, path in files.items()}
    found["path:target"] = str(target.path)
    if draft is not None:
        found["path:draft"] = str(draft.path)
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
