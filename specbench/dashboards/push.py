"""Put the boards, their folder and the data source into a running Grafana.

A second push of the same boards changes nothing. What is there and differs is left alone unless
``overwrite`` is given: somebody may have edited it. ``revision``, a checksum of a board's
content, tells the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specbench.dashboards.alerts import DATASOURCE_UID
from specbench.dashboards.grafana import Grafana
from specbench.dashboards.panels import Json
from specbench.errors import OutputError

FOLDER_UID = "specbench"
DATASOURCE_NAME = "specbench Prometheus"
Say = Callable[[str], None]


def push(
    grafana: Grafana,
    boards: Mapping[str, Json],
    *,
    folder: str = "specbench",
    prometheus: str | None = None,
    overwrite: bool = False,
    say: Say,
) -> None:
    """Create or update the folder, the data source and every board.

    Args:
        grafana: where to.
        boards: from ``build.boards``.
        folder: title of the folder when it is made; it is found by its uid.
        prometheus: address of Prometheus as Grafana sees it; None leaves data sources alone.
        overwrite: replace a board or data source that is there and differs.
        say: told one line for each thing.

    Raises:
        OutputError: something differs and ``overwrite`` was not given; what came before is done.
        ConfigError, UnreachableError, BackendError: see ``Grafana.answering``.
    """
    _push_folder(grafana, folder, say)
    if prometheus is not None:
        _push_datasource(grafana, prometheus, overwrite, say)
    for board in boards.values():
        _push_board(grafana, board, overwrite, say)


def _push_folder(grafana: Grafana, title: str, say: Say) -> None:
    api = grafana.face.folder
    if grafana.found("reading the folder", api.get_folder, FOLDER_UID) is not None:
        say(f"folder {FOLDER_UID}: there already")
        return
    with grafana.answering("making the folder"):
        api.create_folder(title, FOLDER_UID)
    say(f"folder {FOLDER_UID}: made, as {title}")


def _push_datasource(grafana: Grafana, url: str, overwrite: bool, say: Say) -> None:
    api = grafana.face.datasource
    wanted: Json = {
        "name": DATASOURCE_NAME,
        "uid": DATASOURCE_UID,
        "type": "prometheus",
        "access": "proxy",
        "url": url,
    }
    there = grafana.found("reading the data source", api.get_datasource_by_name, DATASOURCE_NAME)
    if there is None:
        with grafana.answering("making the data source"):
            api.create_datasource(wanted)
        say(f"data source {DATASOURCE_NAME}: made, {url}")
    elif there.get("url") == url:
        say(f"data source {DATASOURCE_NAME}: there already")
    elif overwrite:
        with grafana.answering("updating the data source"):
            api.update_datasource(there["id"], {**there, **wanted})
        say(f"data source {DATASOURCE_NAME}: now {url}")
    else:
        raise OutputError(
            f"The data source {DATASOURCE_NAME} of {grafana.url} has the address "
            f"{there.get('url')}, not {url}.",
            todo="Give --overwrite to change it, or leave --prometheus out.",
        )


def _push_board(grafana: Grafana, board: Json, overwrite: bool, say: Say) -> None:
    api, uid = grafana.face.dashboard, board["uid"]
    there: Any = grafana.found(f"reading board {uid}", api.get_dashboard, uid)
    if there is not None and there["dashboard"].get("revision") == board["revision"]:
        say(f"board {uid}: there already")
        return
    if there is not None and not overwrite:
        raise OutputError(
            f"Board {uid} of {grafana.url} differs from this version's.",
            expected="None of that uid, or the same.",
            todo="Give --overwrite to replace it.",
        )
    with grafana.answering(f"pushing board {uid}"):
        api.update_dashboard(
            {
                "dashboard": {**board, "id": None},
                "folderUid": FOLDER_UID,
                "overwrite": overwrite,
                "message": f"specbench dashboards push, revision {board['revision']}",
            }
        )
    say(f"board {uid}: {'made' if there is None else 'replaced'}")
