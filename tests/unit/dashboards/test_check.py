from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from specbench.dashboards.build import boards
from specbench.dashboards.check import check_board, check_expr, check_paths, known_names
from specbench.errors import OutputError

SHIPPED = Path(__file__).parents[3] / "dashboards"


def test_what_is_shipped_names_nothing_unknown() -> None:
    assert check_paths([SHIPPED]) == ()


def test_a_misspelt_metric_is_found_with_board_and_panel() -> None:
    board = copy.deepcopy(boards()["live.json"])
    target = board["panels"][1]["targets"][0]
    target["expr"] = target["expr"].replace("verify_steps_total", "verify_step_total")
    lines = set(check_board(board, known_names()))
    assert lines == {
        "specbench / live run: Accept length: query A: specbench_verify_step_total is not a "
        "series. Did you mean specbench_verify_steps_total?"
    }


@pytest.mark.parametrize(
    ("expr", "says"),
    [
        ('specbench_verify_steps_total{pont="a"}', "has no label pont. Did you mean point?"),
        ("sum by (positon) (specbench_accepted_tokens_total)", "the label positon."),
        ("specbench_step_seconds", "is not a series"),
        ('specbench_step_seconds_sum{le="1"}', "no label le"),
        ("my:rule", "my:rule is not a series"),
        ("node_load1", "is not a series"),
    ],
)
def test_what_does_not_exist(expr: str, says: str) -> None:
    assert says in " ".join(check_expr(expr, known_names()))


@pytest.mark.parametrize(
    "expr",
    [
        'up{job="specbench"} == 1',
        "sum by (le) (rate(specbench_step_seconds_bucket[1m]))",
        'label_join(specbench_run_info, "both", "/", "run_id", "target") * on (both) up',
        'ALERTS{alertname="SpecbenchLoopingOutput", alertstate="firing"}',
    ],
)
def test_what_exists(expr: str) -> None:
    assert list(check_expr(expr, known_names())) == [], expr


def test_a_legend_and_a_variable_are_checked() -> None:
    board = copy.deepcopy(boards()["live.json"])
    board["panels"][1]["targets"][0]["legendFormat"] = "{{instanc}}"
    board["templating"]["list"][1]["query"]["query"] = "label_values(specbench_run_info, instanc)"
    lines = list(check_board(board, known_names()))
    assert any("variable instance" in line and "Did you mean instance?" in line for line in lines)
    assert any("legend's label instanc" in line for line in lines)


def test_a_variable_of_a_result_is_checked() -> None:
    board = copy.deepcopy(boards()["sweep.json"])
    variable = board["templating"]["list"][3]
    variable["regex"] = variable["regex"].replace("batch_size", "batchsize")
    assert [line for line in check_board(board, known_names()) if "no label batchsize" in line]
    variable["query"]["query"] = "metrics(.*)"
    assert [line for line in check_board(board, known_names()) if "neither" in line]


def test_rules_may_use_the_rules_before_them(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(
        "groups: [{name: g, rules: [{record: 'a:b', expr: up}, {alert: A, expr: 'a:b > 1'},"
        " {alert: B, expr: 'a:c > 1'}]}]",
        encoding="utf-8",
    )
    assert check_paths([path]) == ("rules.yml: g: B: a:c is not a series. Did you mean a:b?",)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("board.json", "{", "not JSON"),
        ("board.json", json.dumps([1]), "not a board"),
        ("rules.yml", "groups: 3", "not a file of Prometheus rules"),
        ("rules.yml", "a: [", "not a file of Prometheus rules"),
        ("rules.yml", "groups: [{name: g, rules: [{expr: up}]}]", "record"),
    ],
)
def test_a_file_that_is_something_else(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OutputError, match=says):
        check_paths([path])


def test_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        check_paths([tmp_path / "gone"])
    with pytest.raises(OutputError, match="nothing to check"):
        check_paths([tmp_path])
