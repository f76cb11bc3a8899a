"""What is needed to repeat a run, or to see why another came out differently.

Facts are read from files of the system and from the metadata of installed packages: no process is
started, and neither torch nor a GPU library is imported. What the backend knows of the device and
of its models comes in as plain mappings. No host name, user name or secret is kept.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import re
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import specbench
from specbench.trace import Provenance

_PACKAGES = (
    "torch triton numpy safetensors tokenizers transformers jinja2 pyarrow pandas aiohttp uvloop "
    "prometheus-client nvidia-ml-py matplotlib flash-attn flashinfer-python sglang vllm"
)
_VARIABLES = (
    "OMP_NUM_THREADS OMP_WAIT_POLICY OMP_PROC_BIND KMP_AFFINITY MKL_NUM_THREADS "
    "OPENBLAS_NUM_THREADS CUDA_VISIBLE_DEVICES CUDA_MODULE_LOADING PYTORCH_ALLOC_CONF "
    "PYTORCH_CUDA_ALLOC_CONF NVIDIA_TF32_OVERRIDE LD_PRELOAD"
)
_ARM_CPU = ("CPU implementer", "CPU part", "CPU variant")  # where there is no model name
_CPU_FLAGS = "sse4_2 avx avx2 fma f16c avx512f avx512_bf16 avx512_vnni amx_bf16 amx_tile asimd sve"

_SECRET_FLAG = re.compile(
    r"--?[\w-]*(api-?key|token|password|passwd|secret|authorization|credentials?)", re.IGNORECASE
)
_SECRET_TEXTS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), r"\1 ***"),
    (re.compile(r"(?i)\b(api[_-]?key|access[_-]?token|token|password|secret)=[^&\s]+"), r"\1=***"),
    (re.compile(r"(?i)(x-api-key|authorization):\s*(?!bearer |basic )\S+"), r"\1: ***"),
    (re.compile(r"\b(sk-|nvapi-|glpat-)[\w-]{20,}"), r"\1***"),
    (re.compile(r"\b(hf_|ghp_|glsa_)[A-Za-z0-9_]{30,}"), r"\1***"),
    (re.compile(r"://[^/@\s]+@"), "://***@"),
)


def collect(
    command: Sequence[str],
    *,
    device: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Provenance:
    """The provenance of a run that starts now.

    Args:
        command: the argument vector; secrets in it are masked.
        device: facts from the backend (compute capability, attention call, dtype, clocks).
        inputs: hashes and paths of models, tokenizer, template and workloads. A hash has
            ``sha256`` in its key: by it a resumed run knows that its inputs are the same.
    """
    return Provenance(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=masked(command),
        software=software(),
        machine=machine(),
        device={key: private(value) for key, value in (device or {}).items()},
        inputs={key: private(value) for key, value in (inputs or {}).items()},
    )


def masked(command: Sequence[str]) -> tuple[str, ...]:
    """``command`` with the values of secret flags, and whatever looks like a secret, as ``***``.

    >>> masked(["bench", "--api-key", "abc", "--token=abc", "--num-draft-tokens", "8"])
    ('bench', '--api-key', '***', '--token=***', '--num-draft-tokens', '8')
    """
    shown: list[str] = []
    hide_next = False
    for argument in command:
        flag, equals, value = argument.partition("=")
        secret = _SECRET_FLAG.fullmatch(flag) is not None
        if hide_next:
            shown.append("***")
        elif secret and equals and value:
            shown.append(f"{flag}=***")
        else:
            shown.append(private(argument))
        hide_next = secret and not equals and not hide_next
    return tuple(shown)


def private(text: str) -> str:
    """``text`` without secrets, with ``~`` for the home folder and the user's and host's names out.

    >>> private("http://me:pass@10.0.0.1:8000/v1?api_key=abc")
    'http://***@10.0.0.1:8000/v1?api_key=***'
    """
    for pattern, shown in _SECRET_TEXTS:
        text = pattern.sub(shown, text)
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?=[/:,\s]|$)", "~", text)
    if host := socket.gethostname():
        text = re.sub(rf"(?<=://){re.escape(host)}(?=[:/.]|$)", "<host>", text)
    return re.sub(rf"(?<=/){re.escape(_user())}(?=/|$)", "<user>", text)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user id without a name
        return "<user>"


def software() -> dict[str, str]:
    """Versions of Python, of specbench with its commit and sources, and of packages that matter."""
    package = Path(specbench.__file__).parent
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "specbench": specbench.__version__,
        "specbench_commit": git_commit(package.parent),
        "specbench_source_sha256": _source_hash(package),
    }
    for name in _PACKAGES.split():
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return _known(facts)


def git_commit(checkout: Path) -> str:
    """The commit that ``checkout`` is at, read from its ``.git``; empty when it is no checkout.

    Only this folder is looked at, none above it: an installed package that lies somewhere inside
    another project's checkout is not of that project. Changes that are not committed do not show
    here; the hash of the sources beside it does.
    """
    git = checkout / ".git"
    if git.is_file():  # a worktree or submodule: "gitdir: PATH"
        git = checkout / _read(git).removeprefix("gitdir:").strip()
    common = git / (_read(git / "commondir") or ".")
    head = _read(git / "HEAD")
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    for place in (git, common):
        if commit := _read(place / name):
            return commit
    for line in _read(common / "packed-refs").splitlines():
        commit, _, ref = line.partition(" ")
        if ref == name:
            return commit
    return ""


def _source_hash(package: Path) -> str:
    """One hash over path and content of every source file of the package."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(package).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def machine(root: Path = Path("/")) -> dict[str, str]:
    """The processor, its clocks and limits, the memory and the system, as far as they can be read.

    Args:
        root: where the file system of the machine begins.
    """
    cpu = _fields(_read(root / "proc/cpuinfo"), ":")
    release = _fields(_read(root / "etc/os-release"), "=")
    clocks = root / "sys/devices/system/cpu/cpu0/cpufreq"
    limits = root / "sys/fs/cgroup"
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    return _known(
        {
            "os": release.get("PRETTY_NAME", "").strip('"'),
            "kernel": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "libc": " ".join(platform.libc_ver()).strip(),
            "cpu": cpu.get("model name") or " ".join(cpu.get(key, "") for key in _ARM_CPU).strip(),
            "cpu_flags": " ".join(flag for flag in _CPU_FLAGS.split() if flag in flags),
            "cores_logical": str(os.cpu_count() or ""),
            "cores_physical": _physical_cores(root),
            "cores_usable": str(len(os.sched_getaffinity(0))) if _has_affinity() else "",
            "cpu_mhz": cpu.get("cpu MHz", ""),
            "cpu_max_khz": _read(clocks / "cpuinfo_max_freq"),
            "cpu_governor": _read(clocks / "scaling_governor"),
            "turbo_off": _read(root / "sys/devices/system/cpu/intel_pstate/no_turbo"),
            "memory": _fields(_read(root / "proc/meminfo"), ":").get("MemTotal", ""),
            "cgroup_cpu_max": _read(limits / "cpu.max"),
            "cgroup_memory_max": _read(limits / "memory.max"),
            "load_average": _read(root / "proc/loadavg").rpartition(" ")[0].rpartition(" ")[0],
            **{f"env_{name}": private(os.environ.get(name, "")) for name in _VARIABLES.split()},
        }
    )


def _has_affinity() -> bool:
    return hasattr(os, "sched_getaffinity")  # Linux only


def _physical_cores(root: Path) -> str:
    """Cores counted by the sets of threads that share one."""
    siblings = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    return str(len({_read(path) for path in siblings} - {""}) or "")


def _read(path: Path) -> str:
    """The text of a small system file; empty when it is not there or may not be read."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _fields(text: str, mark: str) -> dict[str, str]:
    """``key mark value`` lines; of keys that repeat (one block per processor) the first."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(mark)
        found.setdefault(key.strip(), value.strip())
    return found


def _known(facts: Mapping[str, str]) -> dict[str, str]:
    """``facts`` without those that are empty: missing is absent."""
    return {key: value for key, value in facts.items() if value}
