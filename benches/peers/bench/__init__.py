"""Measures the peers side by side: from their `peer.json` to plain data, and from plain data to tables and charts.

`peers` reads the descriptions of the peers and builds them; `load` runs a load generator; `jobs` measures one server at
one job; `campaign` lets servers take turns and yields plain data, which is all that is stored. The rest only renders:
`figures` has medians and ratios, `gist` the selection for the README; `tables` writes Markdown, `charts` draws, and
`page` assembles one page. `run.py` is the command.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PEERS = ROOT / "benches/peers"

# The modules that start servers and open connections are shared with the scripts of benches/.
sys.path.insert(0, str(ROOT / "benches"))
