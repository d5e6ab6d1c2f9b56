"""Medians, ratios and aims of made-up rounds."""

import unittest

from bench import figures, page, tables

from . import samples


class Figures(unittest.TestCase):
    def test_a_ratio_is_taken_within_each_round(self):
        own, reference = {1: 1.0, 2: 4.0, 3: 3.0}, {1: 2.0, 2: 8.0, 3: 3.0}
        self.assertEqual(figures.ratio(own, reference), figures.Spread(0.5, 0.5, 1.0, 3))

    def test_a_ratio_needs_rounds_that_both_have(self):
        self.assertEqual(figures.ratio({1: 1.0, 2: 3.0}, {2: 2.0, 3: 9.0}), figures.Spread(1.5, 1.5, 1.5, 1))
        self.assertIsNone(figures.ratio({1: 1.0}, {2: 1.0}))

    def test_nothing_is_divided_by_what_did_not_grow(self):
        self.assertIsNone(figures.ratio({1: 300}, {1: 0}))
        self.assertIsNone(figures.ratio({1: 300}, {1: -12}))

    def test_a_failed_round_gives_no_number_but_its_reason(self):
        results = samples.results()
        samples.add_failure(results, "hyper1", "plaintext-16", 3, "errors beside 12 answers: 1 length")
        self.assertEqual(sorted(figures.rounds(results, "plaintext-16", "hyper1", "cpu")), [1, 2])
        self.assertEqual(figures.failures(results, "plaintext-16", "hyper1"), [("errors beside 12 answers: 1 length", 1)])

    def test_an_idle_connection_costs_a_collected_runtime_what_is_alive_and_a_stuck_one_what_is_resident(self):
        both = {"heap_each": 10, "resident_each": 30}
        self.assertEqual(figures.value("idle", "each", both), 10)
        self.assertEqual(figures.value("stuck", "each", both), 30)
        self.assertEqual(figures.value("idle", "each", {"resident_each": 30}), 30)

    def test_each_aim_is_held_against_the_best_of_its_kind(self):
        first = figures.aims(samples.results())[0]
        checks = {check["to"]: check for check in first["checks"]}
        self.assertEqual(first["ours"], "tidegate-uring")
        whom = {to: check["peer"] for to, check in checks.items()}
        self.assertEqual(whom, {"rival": "hyper1", "netty": "netty-epoll", "floor": "floor"})
        reached = {to: check["reached"] for to, check in checks.items()}
        self.assertEqual(reached, {"rival": True, "netty": False, "floor": True})

    def test_an_aim_without_its_other_side_is_neither_reached_nor_missed(self):
        results = samples.results()
        results["runs"] = [run for run in results["runs"] if run["peer"] == "tidegate-uring"]
        self.assertEqual({check["reached"] for row in figures.aims(results) for check in row["checks"]}, {None})

    def test_nobody_is_below_what_costs_nothing(self):
        results = samples.results(idle={"tidegate-uring": 254, "hyper1": -3, "netty-epoll": 4000, "floor": 30})
        idle = next(row for row in figures.aims(results) if row["title"] == "bytes per idle connection")
        self.assertEqual([(check["reached"], check["ratio"] is None) for check in idle["checks"]], [(False, True), (True, False)])
        self.assertIn("hyper & friends costs nothing (below): **missed**", tables.markdown(results))
        self.assertIn('title="to hyper &amp; friends"> ✗', page.html(results))

    def test_who_has_failed_in_a_round_reaches_nothing(self):
        results = samples.results()
        samples.add_failure(results, "tidegate-uring", "plaintext-256", 2, "errors")
        samples.add_failure(results, "hyper1", "plaintext-16", 2, "errors")
        first, second = figures.aims(results)[:2]
        self.assertEqual({check["reached"] for check in first["checks"]}, {None})
        self.assertEqual(second["checks"][0]["peer"], "netty-epoll")
        self.assertEqual(figures.without_any(results), ["tidegate-uring"])

    def test_below_all_is_less_than_the_best(self):
        results = samples.results(idle={"tidegate-uring": 344, "hyper1": 344, "netty-epoll": 4000, "floor": 30})
        idle = next(row for row in figures.aims(results) if row["title"] == "bytes per idle connection")
        self.assertEqual([check["reached"] for check in idle["checks"]], [False, True])


if __name__ == "__main__":
    unittest.main()
