"""Measures the peers side by side: from their `peer.json` to plain data, and from plain data to tables and charts.

`peers` reads who there is and builds them; `load` runs a load generator; `jobs` measures one server at one job; `campaign`
lets them take turns and yields plain data, which is all that is kept. From there on nothing is measured: `figures` has
medians and ratios, `gist` the few that the README has; `tables` writes Markdown, `charts` draws and `page` puts it on one
page. `run.py` is the command.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PEERS = ROOT / "benches/peers"

# What starts servers and holds connections is shared with the scripts of benches/.
sys.path.insert(0, str(ROOT / "benches"))
