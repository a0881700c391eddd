"""Adds up what ctest, pytest and the checks found; the exit code says whether all is well."""

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def count_tests(report: Path) -> tuple[int, int, int]:
    """Numbers of passed, failed and skipped tests in a JUnit report."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="folder with ctest.xml and pytest.xml")
    parser.add_argument("checks", nargs="*", help="name=exit code; counts only if not zero")
    args = parser.parse_args()

    passed = failed = 0
    for name in ("ctest", "pytest"):
        report = args.results / f"{name}.xml"
        counts = count_tests(report) if report.exists() else (0, 0, 0)
        print(f"{name}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
        if counts[0] + counts[1] == 0:
            print(f"{name}: no test was run")
            failed += 1
        passed += counts[0]
        failed += counts[1]
    bad_checks = [check for check in args.checks if not check.endswith("=0")]
    for check in bad_checks:
        name, code = check.split("=")
        print(f"{name}: failed with exit code {code}")
        # A failed test of pytest is counted above; its exit code may say more (a bad argument).
        failed += 1 if name != "pytest" or code != "1" or failed == 0 else 0
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
