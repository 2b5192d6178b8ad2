"""``python -m pdctl``."""

from __future__ import annotations

import sys

from pdctl.cli import main

if __name__ == "__main__":
    sys.exit(main())
