"""The peers, each as data over the one engine, read from the source of the version that is named."""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.profiles.peer_catalog.share_peers import BENCHMARK_PEERS, SHARE_PEERS
from goldspan.profiles.peer_catalog.trajectory_peers import SUITE_PEERS, TRAJECTORY_PEERS
from goldspan.profiles.peer_options import Peer

PEERS: Mapping[str, Peer] = {
    peer.name: peer for peer in (*SHARE_PEERS, *TRAJECTORY_PEERS, *SUITE_PEERS, *BENCHMARK_PEERS)
}
"""Every peer by its name."""
