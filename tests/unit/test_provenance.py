from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from specbench import provenance
from specbench.provenance import collect, git_commit, machine, masked, private, software

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


@pytest.fixture
def me(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/alice"))
    monkeypatch.setattr("getpass.getuser", lambda: "alice")
    monkeypatch.setattr(socket, "gethostname", lambda: "box7")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--api-key", "abc", "--seed", "1"], ["--api-key", "***", "--seed", "1"]),
        (["--openai-api-key=abc"], ["--openai-api-key=***"]),
        (["--hf-token", "--x", "y"], ["--hf-token", "***", "y"]),
        (["--Password=abc", "--token="], ["--Password=***", "--token="]),
        (["--num-draft-tokens", "8"], ["--num-draft-tokens", "8"]),
        (["--max-tokens=96", "--tokenizer", "dir"], ["--max-tokens=96", "--tokenizer", "dir"]),
        (["Authorization: Bearer a.b-c="], ["Authorization: Bearer ***"]),
        (["X-Api-Key: abc"], ["X-Api-Key: ***"]),
        (["http://u:p@h:1/v1?token=q&n=1"], ["http://***@h:1/v1?token=***&n=1"]),
        (["sk-" + "a1" * 12, "hf_" + "Z9" * 17], ["sk-***", "hf_***"]),
        (["models/hf_llama-3-draft-for-tests"], ["models/hf_llama-3-draft-for-tests"]),
    ],
)
@pytest.mark.usefixtures("me")
def test_secrets_are_masked_and_nothing_else(given: list[str], shown: list[str]) -> None:
    assert list(masked(given)) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/home/alice/models/x", "~/models/x"),
        ("--out=/home/alice", "--out=~"),
        ("/home/alicebob/x", "/home/alicebob/x"),
        ("/scratch/alice/x", "/scratch/<user>/x"),
        ("http://box7:8000/v1", "http://<host>:8000/v1"),
        ("http://box77:8000/v1", "http://box77:8000/v1"),
        ("runs/box7", "runs/box7"),
    ],
)
@pytest.mark.usefixtures("me")
def test_names_of_user_and_host_are_left_out(given: str, shown: str) -> None:
    assert private(given) == shown


@pytest.mark.usefixtures("me")
def test_a_run_records_what_it_was_told_without_private_parts() -> None:
    found = collect(
        ["specbench", "sweep", "--target", "/home/alice/t", "--api-key", "not-a-hex-key"],
        device={"capability": "sm_90"},
        inputs={"target_sha256": "aa", "target": "/home/alice/t"},
    )
    assert found.command == ("specbench", "sweep", "--target", "~/t", "--api-key", "***")
    assert found.device == {"capability": "sm_90"}
    assert found.inputs == {"target_sha256": "aa", "target": "~/t"}
    assert found.started_at.endswith("+00:00")
    text = json.dumps(dataclasses.asdict(found))
    for hidden in ("alice", "box7", "not-a-hex-key"):
        assert hidden not in text
    assert all(value for topic in (found.software, found.machine) for value in topic.values())


def test_software_has_versions_of_what_is_installed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_PACKAGES", "pytest not-installed-anywhere")
    found = software()
    assert found["pytest"] == pytest.__version__
    assert "not-installed-anywhere" not in found
    assert len(found["specbench_source_sha256"]) == 64
    assert found["python"].startswith("CPython 3.")


def test_the_commit_is_read_from_every_form_of_checkout(tmp_path: Path) -> None:
    assert git_commit(tmp_path) == ""
    put(tmp_path / ".git/HEAD", COMMIT + "\n")
    assert git_commit(tmp_path) == COMMIT
    put(tmp_path / ".git/HEAD", "ref: refs/heads/main\n")
    assert git_commit(tmp_path) == ""
    put(
        tmp_path / ".git/packed-refs",
        f"# pack-refs\n{'f' * 40} refs/heads/x\n{COMMIT} refs/heads/main\n",
    )
    assert git_commit(tmp_path) == COMMIT
    put(tmp_path / ".git/refs/heads/main", "a" * 40 + "\n")
    assert git_commit(tmp_path) == "a" * 40
    tree = tmp_path / "tree"
    put(tree / ".git", "gitdir: ../.git/worktrees/tree\n")
    put(tmp_path / ".git/worktrees/tree/HEAD", "ref: refs/heads/main\n")
    put(tmp_path / ".git/worktrees/tree/commondir", "../..\n")
    assert git_commit(tree) == "a" * 40


def test_a_package_inside_another_checkout_has_no_commit(tmp_path: Path) -> None:
    put(tmp_path / ".git/HEAD", COMMIT)
    (tmp_path / "site-packages").mkdir()
    assert git_commit(tmp_path / "site-packages") == ""


def test_the_machine_is_read_from_its_files(tmp_path: Path) -> None:
    cores = (
        "processor: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx2 amx_bf16\ncpu MHz\t\t: 2400.5\n"
    )
    put(tmp_path / "proc/cpuinfo", cores + "\n" + cores.replace("2400.5", "900.0"))
    put(tmp_path / "proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\n")
    put(tmp_path / "proc/loadavg", "0.50 0.40 0.30 1/99 1234\n")
    put(tmp_path / "etc/os-release", 'PRETTY_NAME="Some Linux 1"\nID=some\n')
    cpu = tmp_path / "sys/devices/system/cpu"
    put(cpu / "cpu0/cpufreq/scaling_governor", "powersave\n")
    for number, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        put(cpu / f"cpu{number}/topology/thread_siblings_list", siblings)
    put(tmp_path / "sys/fs/cgroup/cpu.max", "200000 100000\n")
    found = machine(tmp_path)
    expected = {
        "os": "Some Linux 1",
        "cpu": "Some CPU",
        "cpu_flags": "avx2 amx_bf16",
        "cores_physical": "2",
        "cpu_mhz": "2400.5",
        "cpu_governor": "powersave",
        "memory": "1000 kB",
        "cgroup_cpu_max": "200000 100000",
        "load_average": "0.50 0.40 0.30",
    }
    assert {key: found[key] for key in expected} == expected
    assert "cpu_max_khz" not in found


def test_a_machine_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    assert not machine(tmp_path).keys() & {"os", "cpu", "memory", "cpu_flags", "load_average"}
    put(
        tmp_path / "proc/cpuinfo",
        "CPU implementer : 0x41\nCPU part : 0xd4f\nFeatures : asimd sve\n",
    )
    found = machine(tmp_path)
    assert (found["cpu"], found["cpu_flags"]) == ("0x41 0xd4f", "asimd sve")


def test_neither_torch_nor_a_gpu_library_is_imported() -> None:
    code = (
        "import sys; from specbench.provenance import collect; collect(['x'])\n"
        "assert not {'torch', 'pynvml', 'subprocess'} & set(sys.modules), 'imported too much'"
    )
    path = str(Path(provenance.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": path}, timeout=60)
