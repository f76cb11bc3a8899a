"""Every number that a user meets stands in docs/failures.md, with the codes that name it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import specbench
from specbench.doctor.catalogue import kinds
from specbench.doctor.failures import check_explained, codes_of, document, failures, told
from specbench.errors import ConfigError
from tools.make_failures_doc import DOC

SOURCE = Path(specbench.__file__).parent
NUMBER = re.compile(r"\bF\d{1,2}\b")
DTYPES = {"F16", "F32", "F64"}  # of safetensors and GGUF


def test_the_page_is_what_the_tables_make() -> None:
    assert DOC.read_text(encoding="utf-8") == document(), "run: python -m tools.make_failures_doc"


def test_every_number_of_a_code_is_there_and_has_a_code() -> None:
    named = {number for kind in kinds().values() for number in kind.failures}
    assert named == set(failures())
    assert all(codes_of(number) for number in failures())
    assert list(failures()) == [f"F{n}" for n in range(1, len(named) + 1)]


@pytest.mark.parametrize("place", ["specbench", "docs", "README.md"])
def test_every_number_in_a_text_is_there(place: str) -> None:
    root = SOURCE.parent / place
    files = [root] if root.is_file() else [*root.rglob("*.py"), *root.rglob("*.md")]
    assert files
    for file in files:
        unknown = set(NUMBER.findall(file.read_text(encoding="utf-8"))) - set(failures()) - DTYPES
        assert not unknown, f"{file}: {unknown}"


def test_what_users_read_points_at_nothing_outside_the_repository() -> None:
    shown = [kind.why for kind in kinds().values()] + [document(), *told(failures())]
    for text in shown:
        assert not re.search(r"engine-\s?spec|definitions\.md|semantics", text), text


def test_the_narrowest_code_comes_first() -> None:
    assert codes_of("F12")[0] == "map.missing"
    assert codes_of("F23") == ("engine.*", "wiring.*", "shape.first")
    assert codes_of("F57") == ("shape.long",)


def test_every_number_can_be_explained_and_no_other() -> None:
    for number in failures():
        check_explained(number)
    for wrong in ("F0", f"F{len(failures()) + 1}", "f4"):
        with pytest.raises(ConfigError, match=f"F1 to F{len(failures())}, as docs/failures.md"):
            check_explained(wrong)
    with pytest.raises(ConfigError, match="is not a code"):
        check_explained("nonsense")
