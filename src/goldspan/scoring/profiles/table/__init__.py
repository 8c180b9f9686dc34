"""The peers, each as data over the one engine, read from the source of the version that is named."""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.scoring.profiles.peers import Peer
from goldspan.scoring.profiles.table.benchmarks import BENCHMARKS
from goldspan.scoring.profiles.table.shares import SHARES
from goldspan.scoring.profiles.table.suites import SUITES
from goldspan.scoring.profiles.table.trajectories import TRAJECTORIES

PEERS: Mapping[str, Peer] = {peer.name: peer for peer in (*SHARES, *TRAJECTORIES, *SUITES, *BENCHMARKS)}
"""Every peer by its name."""
