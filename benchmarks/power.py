"""Which faults this tool catches, which it names at the right node, and how often it is wrong about honest builds.

python benchmarks/power.py [--full] [--minutes N] [--cache DIR]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # before numpy: small products on many threads only wait
    os.environ.setdefault(_name, "1")

from power import plugin  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="hundreds of builds; continues where it was stopped")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop after so long; the rest comes next time"
    )
    parser.add_argument("--cache", type=Path, default=Path(".npu-verify/power"))
    parser.add_argument("--results", type=Path, help="the file of lines to go on from, whatever version wrote it")
    parser.add_argument("--model", action="append", help="these models only")
    parser.add_argument("--variant", action="append", help="fp16 or int8 only")
    parser.add_argument("--fault", action="append", help="these faults only")
    parser.add_argument("--only", choices=("faults", "memory", "honest", "table"), help="one part")
    options = parser.parse_args()
    plugin.offered()
    from power.plan import go

    go(options)


if __name__ == "__main__":
    main()
