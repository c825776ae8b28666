"""The README's example runs and says what is true."""

import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_and_one_rank_and_four_agree(capsys):
    code, *_ = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert float(capsys.readouterr().out) < 1e-14


def test_what_it_links_to_is_there():
    root = Path(__file__).parent.parent
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (root / target).exists(), target
