from __future__ import annotations

import base64
import hashlib
import json
import re

from specbench.metrics.summary import Summary
from specbench.report.outputs import ShownOutput, ShownStep
from specbench.report.page import asset, explorer, head, page_data

STEP = ShownStep(text="</script><b>&", emitted=1, accepted=0, depth=3)
OUTPUT = ShownOutput(
    point="k3",
    request_id="r",
    category="code",
    prompt="a\u2028b",
    finish="stop",
    steps=(STEP,),
    tokens=3,
    verify_steps=1,
    accepted=1,
    cut=0,
)


def test_a_row_for_every_arm_and_category(summary: Summary) -> None:
    rows = page_data(summary, ())["rows"]
    assert len(rows) == sum(1 + len(arm.categories) for arm in summary.arms)
    totals = [row for row in rows if row["category"] == "all"]
    assert sum(row["best"] for row in totals) == len(summary.bests)
    assert all(row["accept"] is None for row in rows if row["baseline"])
    fast = next(row for row in totals if row["best"])
    arm = summary.headline.arm
    assert arm is not None
    assert arm.total.speedup is not None
    assert fast["speedup"][0] == arm.total.speedup.value
    assert fast["emitted"] / fast["break_even"] == (
        arm.total.decomposition.product if arm.total.decomposition else None
    )


def test_the_data_cannot_end_the_script_and_come_back_whole() -> None:
    data = {"rows": [], "outputs": [{"text": STEP.text, "prompt": OUTPUT.prompt}]}
    page = explorer(data)
    (inside,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert "<" not in inside
    assert "\u2028" not in inside
    assert json.loads(inside) == data


def test_outputs_are_plain_data(summary: Summary) -> None:
    (one,) = page_data(summary, [OUTPUT])["outputs"]
    counts = {"emitted": 1, "accepted": 0, "depth": 3}
    assert one["steps"][0] == {"text": STEP.text, **counts, "rejected": None}


def test_the_policy_names_the_script_and_style_that_are_there() -> None:
    page = head("t")
    style = asset("steps.css") + asset("report.css")
    for inline in (asset("report.js"), style):
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page
    assert "default-src 'none'" in page
    assert f"<script>{asset('report.js')}</script>" in explorer({})
    assert f"<style>{style}</style>" in page


def test_nothing_is_asked_from_outside() -> None:
    for name in ("report.js", "report.css", "explorer.html"):
        found = set(re.findall(r"https?://[^\s\"']+", asset(name)))
        assert found <= {"http://www.w3.org/2000/svg"}
        assert "@import" not in asset(name)
        assert "url(" not in asset(name)
