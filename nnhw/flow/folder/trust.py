"""Signatures of a build's files by a key of this user; what does not carry one is not compiled.

Verilog may run code of any kind on the machine that compiles it, and no check of its text finds all of it. So nnhw
signs what it makes, and compiles what carries this user's signature, or what the user says to trust.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import shlex
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nnhw.errors import BuildError

VARIABLE = "NNHW_KEY"
"""Environment variable that names another file for the key."""
KEY_BYTES = 32
_PURPOSE = b"nnhw: files of a stage\0"


def sign(stage: str, entry: Mapping[str, Any]) -> str:
    """Return the signature of a stage's entry in a manifest: of its name, its key and the hashes of its files.

    Raises
    ------
    BuildError: the key's file is damaged.
    """
    said = json.dumps([stage, entry.get("key"), entry.get("files")], sort_keys=True)
    return hmac.new(_key(), _PURPOSE + said.encode(), "sha256").hexdigest()


def is_signed(stage: str, entry: Mapping[str, Any]) -> bool:
    """Return whether an entry carries the signature of this user."""
    # As bytes: the manifest may hold any text, and compare_digest takes only ASCII in a str.
    return hmac.compare_digest(str(entry.get("signature", "")).encode(), sign(stage, entry).encode())


def require_key() -> None:
    """Raise BuildError where the key of this user cannot be kept: what it signs would be worth nothing afterwards."""
    problem = _key_problem()
    if problem:
        raise BuildError(
            f"key file '{key_path()}' cannot be made or read ({problem}), so trust ends with this process; name "
            f"another file by the variable {VARIABLE}, or trust once: 'nnhw run --trust', nnhw.open(.., trust=True)"
        )


def refusal(path: Path, model: str, board: str, stage: str) -> BuildError:
    """Return the error for a folder whose files are not compiled because somebody else made them."""
    folder, command = shlex.quote(str(path)), f"nnhw build {model}.py --board {board} --start-from {stage}"
    why = _key_problem()
    return BuildError(
        f"build folder '{path}': its stage '{stage}' was not made by this user's nnhw, or was changed since, and "
        "Verilog may run any code when it is compiled; make it anew with "
        f"'{command} --stop-at {stage} --out {folder}', or, if you trust whoever made it, say 'nnhw trust {folder}'"
        + (f" (nnhw signs with a key in '{key_path()}', which cannot be kept there: {why})" if why else "")
    )


def key_path() -> Path:
    """Return the path of this user's key."""
    import platformdirs

    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else Path(platformdirs.user_data_dir("nnhw", appauthor=False)) / "key"


def _key() -> bytes:
    """Return the key of this user, made at its first use; where it cannot be stored, one for this process alone."""
    path = key_path()
    try:
        if not path.exists():
            _make(path)
        key = path.read_bytes()
    except OSError:
        return _key_of_process()
    if len(key) != KEY_BYTES:
        raise BuildError(
            f"key file '{path}' has {len(key)} bytes, but needs {KEY_BYTES}; delete it: nnhw makes another one, with "
            "which builds that were made before are made again, or trusted by 'nnhw trust BUILD'"
        )
    return key


def _key_problem() -> str | None:
    """Return why the key of this user cannot be stored; None where it can."""
    try:
        if not key_path().exists():
            _make(key_path())
        key_path().read_bytes()
    except OSError as error:
        return error.strerror or str(error)
    return None


@cache
def _key_of_process() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def _make(path: Path) -> None:
    """Make a key that only this user can read; the first one stays where two processes make one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(prefix=".partial-", dir=path.parent)  # its mode is 0600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(secrets.token_bytes(KEY_BYTES))
        try:
            # Unlike a rename, a link does not replace the key that another process has made meanwhile.
            os.link(name, path)
        except FileExistsError:
            return
        except OSError:  # a file system without hard links
            os.replace(name, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)
