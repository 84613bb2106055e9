"""clearhead audit, as a teacher uses it: the handout's code runs in the sandbox."""

import json

WRONG = """\
# Week 1

```python
import torch
torch.manual_seed(0)
print(torch.randn(2))
```
```
tensor([ 1.5410, -0.2834])
```
"""


def test_a_handout_is_audited_in_the_sandbox(run, tmp_path):
    path = tmp_path / "week1.md"
    path.write_text(WRONG)
    code, out, err = run("audit", path, "--json")
    assert code == 1, err
    found = json.loads(out)
    (finding,) = found["findings"]
    assert (finding["line"], finding["kind"]) == (9, "wrong")
    assert "-0.2934" in finding["proof"]
    assert (found["file"], found["checked"], found["unchecked"]) == ("week1.md", 1, 0)
    path.write_text(WRONG.replace("2834", "2934"))
    code, out, err = run("audit", path)
    assert (code, out) == (0, "0 wrong, 0 weak tests; 1 checked, 0 unchecked\n"), err


def test_wrong_usage_is_answered(run, tmp_path):
    code, _, err = run("audit", tmp_path / "nothing.md")
    assert (code, "is not there" in err) == (2, True)
    code, _, err = run("audit", tmp_path / "slides.pdf")
    assert (code, "must be a .md, .txt or .ipynb file" in err) == (2, True)
