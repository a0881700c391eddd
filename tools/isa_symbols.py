"""Looks for inline functions that only objects of a higher instruction set define.

The linker keeps one copy of each such function for the whole module. It takes the baseline's if
there is one; without one, every machine would run code that only newer machines understand.
"""

import argparse
import subprocess
import sys


def shared_symbols(nm: str, objects: list[str]) -> set[str]:
    """Names of the symbols that the linker merges between objects."""
    output = subprocess.run(
        [nm, "--defined-only", "-f", "posix", *objects], check=True, capture_output=True, text=True
    ).stdout
    rows = [line.split() for line in output.splitlines()]
    return {row[0] for row in rows if len(row) >= 2 and row[1] in "WVuv"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nm", default="nm")
    for isa in ("baseline", "avx2", "avx512"):
        parser.add_argument(f"--{isa}", nargs="*", default=[])
    args = parser.parse_args()
    if not args.baseline:
        print("isa_symbols: no baseline objects given")
        return 1
    baseline = shared_symbols(args.nm, args.baseline)
    status = 0
    for isa in ("avx2", "avx512"):
        if not getattr(args, isa):
            continue
        # The sources' own namespace makes a name unlike any other instruction set's.
        own = f"{len(isa)}{isa}"
        for symbol in sorted(shared_symbols(args.nm, getattr(args, isa)) - baseline):
            if own not in symbol:
                print(f"{isa}: {symbol} is not in the baseline objects")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
