"""The peers as data over the engine, read from the source code of the stated version of each peer.

``share_peers``: peers that score a share of calls, and the checkers of two benchmarks.
``trajectory_peers``: peers that compare trajectories.
``suite_peers``: the evaluation suites of larger platforms.
"""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.profiles.peer_catalog.share_peers import BENCHMARK_PEERS, SHARE_PEERS
from goldspan.profiles.peer_catalog.suite_peers import SUITE_PEERS
from goldspan.profiles.peer_catalog.trajectory_peers import TRAJECTORY_PEERS
from goldspan.profiles.peer_options import Peer

PEERS: Mapping[str, Peer] = {
    peer.name: peer for peer in (*SHARE_PEERS, *TRAJECTORY_PEERS, *SUITE_PEERS, *BENCHMARK_PEERS)
}
"""All peers by name."""
