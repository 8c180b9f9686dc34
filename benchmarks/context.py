"""Counts the tools that stay in an agent's trace if the agent uses threads, tasks or a generator.

    python benchmarks/context.py [--peers FOLDER [--only PEER ...]] [--check]

One decorated agent calls two decorated tools. *2/2*: both are in the agent's trace; *0/2*: each one is in a trace of
its own. *Peers* are set up as their documentation describes, and installed from PyPI into FOLDER on first use, as
`overhead.py` does. `--check` exits with 1 if goldspan loses a tool.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from peers.capture import CAPTURE_PEERS
from peers.environments import Unavailable, answer, environment

WORKER = Path(__file__).parent / "peers" / "capture_worker.py"


def main() -> int:
    """Measure goldspan and each peer, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="install the peers here, and measure them too")
    parser.add_argument("--only", nargs="+", metavar="PEER", choices=[peer.name for peer in CAPTURE_PEERS])
    parser.add_argument("--check", action="store_true", help="exit with 1 if goldspan loses a tool")
    options = parser.parse_args()

    ours: dict[str, str] = answer("goldspan", Path(sys.executable), WORKER, "context")
    print(f"{'':40}{''.join(f'{way:24}' for way in ours)}")
    _show("goldspan", ours)
    for peer in CAPTURE_PEERS if options.peers else ():
        if not options.only or peer.name in options.only:
            try:
                _show(
                    peer.requirement, answer(peer.name, environment(peer, options.peers.resolve()), WORKER, "context")
                )
            except Unavailable as why:
                print(f"{peer.requirement} {why}", flush=True)
    return 1 if options.check and {*ours.values()} != {"2/2"} else 0


def _show(name: str, found: dict[str, str]) -> None:
    print(f"{name:40}{''.join(f'{kept:24}' for kept in found.values())}".rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
