"""Sweeps of servers that fix their point at launch, alone and with a second one beside it."""

from __future__ import annotations

import csv
import json
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from specbench import cli
from specbench.config import SpecConfig
from specbench.server.app import build_app, serve
from specbench.store import RunDir
from specbench.trace import ArmRun
from tests.fakes import FakeBackend
from tests.in_thread import in_thread

SIZE = ("--requests", "6", "--blocks", "2", "--max-tokens", "9", "--warmup", "0")
GRID = ("--num-steps", "0,1,3", "--topk", "1", "--batch-size", "1", "--backend", "sglang")
KEY = "s3cret"


@web.middleware
async def says_its_point(request: web.Request, handler: Handler) -> web.StreamResponse:
    """As SGLang does: the resolved point is in /server_info, and nothing switches it."""
    answer = await handler(request)
    if request.path != "/server_info":
        return answer
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    said = json.loads(answer.body)
    del said["specbench"]
    return web.json_response(said)


@web.middleware
async def says_nothing(request: web.Request, handler: Handler) -> web.StreamResponse:
    """As vLLM does: a version, and no word of its speculation."""
    if request.path == "/version":
        return web.json_response({"version": "0.33.0"})
    if request.path == "/server_info":
        return web.json_response({}, status=404)
    return await handler(request)


async def no_version(_: web.Request) -> web.Response:
    return web.json_response({})


class Fixed:
    """A running server of one point; ``fake`` sees what is sent to it."""

    def __init__(self, spec: SpecConfig, manner: Middleware) -> None:
        self.fake = FakeBackend(spec=spec, delay_s=0.002)
        self.manner = manner
        self.url = ""


def running(*servers: Fixed) -> AbstractContextManager[None]:
    """All of ``servers`` on free ports, in a thread of their own."""

    async def start(stack: AsyncExitStack) -> None:
        for server in servers:
            facts = await server.fake.open()
            app = build_app(server.fake, facts, spec=server.fake.spec, batch_size=4, api_key=KEY)
            app.router.add_get("/version", no_version)
            app.middlewares.append(server.manner)
            served = await serve(app, drain_s=0.2)
            stack.push_async_callback(served.stop)
            server.url = served.url

    return in_thread(start)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECBENCH_API_KEY", KEY)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("prompts") / "six.txt"
    path.write_text("".join(f"say {i}\n" for i in range(6)), encoding="utf-8")
    return f"raw:{path}"


def rows(out: Path) -> dict[str, dict[str, str]]:
    """The rows of summary.csv by point."""
    with (out / "summary.csv").open(encoding="utf-8", newline="") as file:
        return {row["point_id"]: row for row in csv.DictReader(file) if row["category"] == "all"}


def test_plain_decoding_goes_to_the_second_server_and_gives_a_speedup(
    prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = Fixed(SpecConfig.chain(3), says_its_point)
    plain = Fixed(SpecConfig.baseline(), says_nothing)
    out, saved = tmp_path / "run", RunDir.save_block

    def stops_after_three(run_dir: RunDir, arm: ArmRun) -> None:
        saved(run_dir, arm)
        if len(run_dir.blocks()) == 3:
            raise KeyboardInterrupt

    with running(fast, plain):
        urls = ("--server", fast.url, "--baseline-server", plain.url)
        words = ["sweep", *urls, *GRID, *SIZE, "--noise-floor", "--workload", prompts]
        with monkeypatch.context() as patch:
            patch.setattr(RunDir, "save_block", stops_after_three)
            assert cli.main([*words, "--out", str(out)]) == 3
        report = (out / "report.md").read_text(encoding="utf-8")
        assert "Unfinished: 3 of 6 blocks were measured" in report
        assert cli.main(["sweep", "--resume", "--out", str(out)]) == 0

    with RunDir.open(out) as run_dir:
        order = [(arm.point_id, arm.block) for arm in run_dir.iter_runs()]
        device = run_dir.provenance.device
        dropped = {gone["num_steps"]: gone["reason"] for gone in run_dir.run_json["dropped"]}
    arms = ("base", "k3", "base-again")
    assert order == [*((p, 0) for p in arms), *((p, 1) for p in (*arms[1:], arms[0]))]
    assert (len(fast.fake.sent), len(plain.fake.sent)) == (6, 12)
    assert fast.fake.points == plain.fake.points == []
    assert (device["url"], device["baseline_url"]) == (fast.url, plain.url)
    assert device["baseline_server"] == "vllm 0.33.0"
    assert list(dropped) == [1]
    assert "num_steps=3" in dropped[1]
    found = rows(out)
    assert float(found["k3"]["speedup"]) > 1.2
    assert found["k3"]["lossless"] == "exact"
    assert "no_baseline" not in found["k3"]["validity"]
    assert "Unfinished" not in (out / "report.md").read_text(encoding="utf-8")


def test_without_a_second_server_only_its_own_point_is_measured(
    prompts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Fixed(SpecConfig.chain(3), says_its_point)
    out = tmp_path / "run"
    with running(server):
        words = ["sweep", "--server", server.url, *GRID, *SIZE, "--workload", prompts]
        assert cli.main([*words, "--out", str(out)]) == 0
        assert cli.main([*words, "--noise-floor", "--out", str(tmp_path / "no")]) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert "no speedup" in said
    assert "--baseline-server" in said
    assert "left out 1 of the points asked: the server runs num_steps=3" in said
    assert "3 points, 0 combinations dropped, 6 blocks" in said
    assert "1 of 3 points are left, 2 blocks" in said
    (found,) = rows(out).values()
    assert (found["point_id"], found["speedup"]) == ("k3", "")
    assert "no_baseline" in found["validity"]
    assert not (tmp_path / "no").exists()


def test_of_a_server_that_says_nothing_one_point_is_asked(
    prompts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Fixed(SpecConfig.chain(3), says_nothing)
    with running(server):
        words = ["sweep", "--server", server.url, *GRID, *SIZE, "--workload", prompts]
        assert cli.main([*words, "--out", str(tmp_path / "no")]) == 2
        assert cli.main([*words, "--num-steps", "0,3", "--out", str(tmp_path / "run")]) == 0
    assert "2 points are asked" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    assert list(rows(tmp_path / "run")) == ["k3"]


def test_a_baseline_server_that_speculates_gives_no_speedup(prompts: str, tmp_path: Path) -> None:
    fast = Fixed(SpecConfig.chain(3), says_its_point)
    liar = Fixed(SpecConfig.chain(2), says_nothing)
    with running(fast, liar):
        urls = ("--server", fast.url, "--baseline-server", liar.url)
        words = ["sweep", *urls, *GRID, *SIZE, "--workload", prompts]
        assert cli.main([*words, "--out", str(tmp_path / "run")]) == 0
    found = rows(tmp_path / "run")
    assert "baseline_speculates" in found["base"]["validity"]
    assert (found["k3"]["speedup"], found["k3"]["lossless"]) == ("", "")
    assert "no_baseline" in found["k3"]["validity"]


def test_a_refused_start_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the run's nor the ``runs`` that it would be in, unless others are there."""
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "--server", "http://127.0.0.1:1", "--num-steps", "0", "--requests", "1"]
    assert cli.main(words) != 0
    assert "Nothing answers" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs" / "other").mkdir(parents=True)
    assert cli.main(words) != 0
    assert list((tmp_path / "runs").iterdir()) == [tmp_path / "runs" / "other"]
