"""Programs and commands of pages, run in this process: to import PyTorch takes longer than most of what they do."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nnhw.cli import app


def run_program(*words: str) -> str:
    """Run a program as `python WORDS` does; return what it prints."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", list(words))
        patch.syspath_prepend(str(Path(words[0]).resolve().parent))
        status = None
        try:
            runpy.run_path(words[0], run_name="__main__")
        except SystemExit as end:
            status = end.code
    assert not status, f"{words} ended with {status}\n{printed.getvalue()}"
    return printed.getvalue()


def run_command(*words: str) -> str:
    """Run `nnhw WORDS`; return what it prints."""
    done = CliRunner().invoke(app, words, env={"COLUMNS": "100"})
    assert done.exit_code == 0, f"nnhw {' '.join(words)}\n{done.output}"
    return done.stdout
