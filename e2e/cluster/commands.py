"""Running other programs to their end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .messages import Problem


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    check: bool = True,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    shown: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a program and captures what it says; a failure carries its last words."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=cwd,
            env=None if env is None else {**os.environ, **env},
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Problem(f"{shown or ' '.join(words)} did not end within {timeout:.0f} s") from None
    except FileNotFoundError:
        raise Problem(f"{words[0]} is not installed or not in PATH") from None
    if check and done.returncode != 0:
        raise Problem(
            f"{shown or ' '.join(words)} failed with exit code {done.returncode}:\n{tail(done.stderr or done.stdout)}"
        )
    return done


def tail(text: str, lines: int = 25) -> str:
    return "\n".join(text.rstrip().splitlines()[-lines:])
