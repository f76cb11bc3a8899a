from specbench.report.document import Table


def test_columns_of_words_are_set_left() -> None:
    table = Table(columns=("point", "tok/s", "why"), rows=(), words=("point", "why"))
    assert table.left == (True, False, True)
