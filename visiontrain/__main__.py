"""``python -m visiontrain`` is the command ``visiontrain``."""

from __future__ import annotations

import sys

from visiontrain.cli import main

if __name__ == "__main__":
    sys.exit(main())
