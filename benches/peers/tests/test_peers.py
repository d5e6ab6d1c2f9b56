"""Which peers are measured and which are skipped."""

import unittest

from bench import PEERS, ROOT, peers
from servers import Failure

PEER = {
    "title": "One 1.0",
    "needs": ["sh", "a-tool-that-nobody-has"],
    "packages": ["one-light"],
    "variants": [{"name": "one-a", "command": "{dir}/one a"}, {"name": "one-b", "command": "{target}/one {root}"}],
}


class Peers(unittest.TestCase):
    def test_a_missing_tool_skips_a_peer_with_a_line(self):
        lines = []
        ready, skipped = peers.prepare({"one": PEER}, False, lines.append)
        self.assertEqual(ready, [])
        self.assertEqual(skipped[0]["reason"], "a-tool-that-nobody-has not found (Debian: one-light)")
        self.assertEqual(lines, [f"skipping one: {skipped[0]['reason']}"])

    def test_a_build_that_fails_skips_a_peer_with_what_it_said(self):
        peer = dict(PEER, needs=[], build=["sh -c 'echo it is broken; exit 3'"])
        _, skipped = peers.prepare({"floor": peer}, False, lambda line: None)
        self.assertIn("ended with 3: it is broken", skipped[0]["reason"])

    def test_variants_are_peers_of_their_own_with_their_places_put_in(self):
        one, other = peers.variants("one", PEER)
        self.assertEqual(one.command, f"{PEERS}/one/one a")
        self.assertEqual(other.command, f"{PEERS}/target/release/one {ROOT}")

    def test_peers_are_named_by_folder_or_by_variant(self):
        known = {"one": PEER, "two": dict(PEER, variants=[{"name": "two", "command": "two"}])}
        self.assertEqual(list(peers.chosen(known, ["two"])), ["two"])
        self.assertEqual([variant["name"] for variant in peers.chosen(known, ["one-b"])["one"]["variants"]], ["one-b"])
        self.assertEqual(peers.chosen(known, None), known)
        with self.assertRaises(Failure):
            peers.chosen(known, ["three"])

    def test_every_peer_that_is_here_says_what_is_needed_of_it(self):
        for name, peer in peers.read_all().items():
            for variant in peers.variants(name, peer):
                self.assertTrue(variant.title and variant.command and variant.configured, name)


if __name__ == "__main__":
    unittest.main()
