"""Which part of a file a model needs, and which modules beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnhw.searching.chosen import Chosen
from nnhw.searching.exporting import literal
from nnhw.searching.user_sources import digest, local_modules, needed_text

PROGRAM = '''"""What it is."""

from __future__ import annotations

import os, sys
import torch
from data import load

# How wide.
WIDTH = 8  # channels
IMAGES = load(WIDTH)
torch.manual_seed(0)
print(IMAGES)
A = B = 1


@decorate
def model(trial):
    def inner():
        return Block.size
    return [inner() for WIDTH in range(3)], helper


def train(model, trial):
    return IMAGES


class Block:
    size = WIDTH


Block.other = B
IMAGES.other = B

if torch.cuda.is_available():
    def helper(): return deep()
else:
    helper = None

def deep():
    global counter
    counter = 1

def decorate(function):
    return function

if __name__ == "__main__":
    model(None)
'''

NEEDED = '''"""What it is."""

from __future__ import annotations


import torch


# How wide.
WIDTH = 8  # channels


torch.manual_seed(0)


A = B = 1


@decorate
def model(trial):
    def inner():
        return Block.size
    return [inner() for WIDTH in range(3)], helper


class Block:
    size = WIDTH


Block.other = B


if torch.cuda.is_available():
    def helper(): return deep()
else:
    helper = None

def deep():
    global counter
    counter = 1

def decorate(function):
    return function
'''


def test_needed_text_is_what_the_model_uses_and_no_more() -> None:
    assert needed_text(PROGRAM, "model") == NEEDED
    assert needed_text(NEEDED, "model") == NEEDED


def test_needed_text_keeps_what_fills_a_list_or_a_table() -> None:
    filling = "SIZES = []\nSTEP = 2\nfor k in range(3):\n    SIZES.append(k * STEP)\n    SIZES[k] += 1\nSIZES.sort()\n"
    other = "OTHER = []\nfor k in range(3):\n    OTHER.append(k)\n"
    model = "def model(trial):\n    return SIZES\n"
    assert needed_text(filling + other + model, "model").split() == (filling + model).split()


def test_local_modules_are_found_through_each_other(tmp_path: Path) -> None:
    texts = {
        "a.py": "import b.part\nimport torch\n",
        "b/__init__.py": "",
        "b/part.py": "def f():\n    from c import x\n",
        "c.py": "import a\n",
        "d.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = [path.relative_to(tmp_path).as_posix() for path in local_modules("import a\n", tmp_path)]
    assert found == ["a.py", "b/__init__.py", "b/part.py", "c.py"]
    file = tmp_path / "file.py"
    file.write_text("import a\n", encoding="utf-8")
    before = digest(file)
    (tmp_path / "d.py").write_text("changed = 1\n", encoding="utf-8")
    assert digest(file) == before
    (tmp_path / "c.py").write_text("changed = 1\n", encoding="utf-8")
    assert digest(file) != before


def test_literal_is_python_for_all_that_a_parameter_can_be() -> None:
    params = {"a b": 'quoted "text"\n', "n": None, "flag": True, "i": -3, "f": 1e-300, "inf": float("-inf")}
    space: dict[str, object] = {}
    exec(f"found = {literal(params)}", space)
    assert space["found"] == params


def test_chosen_has_the_values_of_its_trial_and_no_others() -> None:
    chosen = Chosen({"width": 4, "rate": 0.5, "kind": "x"}, 7)
    assert (chosen.suggest_int("width", 1, 8), chosen.suggest_float("rate", 0, 1)) == (4, 0.5)
    assert chosen.suggest_categorical("kind", ["x", "y"]) == "x"
    chosen.report(0.5, 1)
    with pytest.raises(Exception, match="asks for the parameter 'depth', which its trial had not; it had width, rate"):
        chosen.suggest_int("depth", 1, 2)
