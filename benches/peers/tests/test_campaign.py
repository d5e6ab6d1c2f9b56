"""Turns, and what is kept of them, with servers and loads that are made up."""

import types
import unittest
from unittest import mock

from bench import campaign, jobs, load, peers
from servers import Failure

NAMES = ["a", "b", "c", "d"]


class Standing:
    """A server that only notes what is done with it."""

    def __init__(self, name, notes):
        self.name = name
        self.notes = notes

    def __enter__(self):
        self.notes.append((self.name, "start"))
        return self

    def __exit__(self, *_):
        self.notes.append((self.name, "end"))

    def hold(self):
        self.notes.append((self.name, "hold"))

    def go_on(self):
        self.notes.append((self.name, "go on"))


def variant(name):
    return peers.variants(name, {"title": name, "variants": [{"name": name, "command": name}]})[0]


def played(rounds, fails=lambda name, job: False):
    """Plays made-up servers; returns the results, and what was done with them in which order."""
    notes, results = [], {"runs": []}
    options = types.SimpleNamespace(rounds=rounds, memory_rounds=1, seed=7, server_core="0", warm_up=8)
    chosen = [jobs.Job(name, name, load.Work("/", 1, 1)) for name in ("one", "two")]
    chosen.append(jobs.Job("idle", "idle", crowd="idle"))

    def measured(name, job):
        notes.append((name, job.name))
        if fails(name, job):
            raise Failure("it fails")
        return {"resident_each": 1}

    made_up = {
        "started": lambda variant, core: Standing(variant.name, notes),
        "measure_load": lambda server, job, options, warm_up_seconds: measured(server.name, job),
        "measure_crowd": lambda variant, job, options: measured(variant.name, job),
    }
    with mock.patch.multiple(campaign.work, **made_up):
        campaign.play(results, [variant(name) for name in NAMES], chosen, options, lambda line: None, lambda results: None)
    return results["runs"], notes


class Campaign(unittest.TestCase):
    def test_a_job_is_done_by_all_before_the_next_one(self):
        runs, _ = played(2)
        for at, job in [(0, "one"), (4, "two"), (8, "idle"), (12, "one"), (16, "two")]:
            turn = runs[at : at + 4]
            self.assertEqual({run["job"] for run in turn}, {job})
            self.assertEqual(sorted(run["peer"] for run in turn), NAMES)
        self.assertEqual(len(runs), 20)

    def test_the_order_is_another_one_each_time_and_the_same_in_each_run(self):
        runs, _ = played(6)
        orders = {tuple(run["peer"] for run in runs if (run["round"], run["job"]) == (number, "one")) for number in range(1, 7)}
        self.assertGreater(len(orders), 3)
        self.assertEqual(runs, played(6)[0])

    def test_a_server_stays_for_all_loads_of_a_round_and_is_held_while_others_are_measured(self):
        _, notes = played(1)
        own = [what for name, what in notes if name == "c"]
        self.assertEqual(own, ["start", "one", "hold", "go on", "two", "hold", "end", "idle"])

    def test_after_a_failure_a_server_starts_afresh(self):
        runs, notes = played(1, lambda name, job: (name, job.name) == ("b", "one"))
        own = [what for name, what in notes if name == "b"]
        self.assertEqual(own, ["start", "one", "end", "start", "two", "hold", "end", "idle"])
        self.assertEqual([run["job"] for run in runs if "failure" in run], ["one"])


if __name__ == "__main__":
    unittest.main()
