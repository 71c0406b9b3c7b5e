"""Every benchmark, one after another: `python -m benchmarks [--quick]`. Each is a script of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run all; the exit code is of the worst."""
    scripts = sorted(p for p in HERE.rglob("*.py") if not p.stem.startswith("_"))
    return max(subprocess.run([sys.executable, str(script), *sys.argv[1:]], check=False).returncode for script in scripts)


if __name__ == "__main__":
    sys.exit(main())
