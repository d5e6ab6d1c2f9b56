"""Jobs of one run that are added to the results of another."""

import copy
import unittest
import xml.etree.ElementTree as xml

from bench import figures, page, parts, tables
from servers import Failure

from . import samples

ORDER = ["plaintext-256", "plaintext-16", "light-256", "light-500", "idle"]
LIGHT = ["light-256", "light-500"]


def merged(results=None, added=None, names=LIGHT):
    return parts.merged(results or samples.results(), added or samples.light_results(), names, ORDER)


class Parts(unittest.TestCase):
    def test_added_jobs_keep_the_date_and_the_settings_of_their_own_run(self):
        found = merged()
        self.assertEqual(list(found["jobs"]), ORDER)
        part = parts.of_job(found, "light-500")
        self.assertEqual((part["date"], part["settings"]["seconds"]), ("2026-03-04 05:06 UTC", 5))
        self.assertEqual(list(part["jobs"]), LIGHT)
        self.assertEqual(part["revision"], "abc1234")
        self.assertNotIn("runs", part)
        for job in samples.results()["jobs"]:
            self.assertIs(parts.of_job(found, job), found)
        self.assertEqual((found["date"], found["settings"]), (samples.results()["date"], samples.results()["settings"]))

    def test_figures_of_other_jobs_stay_as_they_are(self):
        before, found = samples.results(), merged()
        self.assertEqual([run for run in found["runs"] if run["job"] not in LIGHT], before["runs"])
        self.assertEqual([run for run in found["runs"] if run["job"] in LIGHT], samples.light_results()["runs"])
        self.assertEqual(figures.without_any(found), figures.without_any(before))

    def test_neither_side_is_changed(self):
        results, added = samples.results(), samples.light_results()
        kept = copy.deepcopy((results, added))
        merged(results, added)
        self.assertEqual((results, added), kept)

    def test_only_the_jobs_that_are_named_are_added(self):
        found = merged(names=["light-500"])
        self.assertNotIn("light-256", found["jobs"])
        self.assertEqual({run["job"] for run in found["runs"]} & set(LIGHT), {"light-500"})
        self.assertEqual(list(found["parts"][0]["jobs"]), ["light-500"])

    def test_a_job_that_is_added_again_replaces_the_first(self):
        twice = merged(merged(), samples.light_results("2026-05-06 07:08 UTC"), ["light-256"])
        self.assertEqual([list(part["jobs"]) for part in twice["parts"]], [["light-500"], ["light-256"]])
        self.assertEqual(parts.of_job(twice, "light-256")["date"], "2026-05-06 07:08 UTC")
        self.assertEqual(len(figures.rounds(twice, "light-256", "floor", "light_99")), 2)
        self.assertEqual(len([entry for entry in twice["without"] if entry["job"] == "light-500"]), 1)
        self.assertEqual(len(merged(merged())["parts"]), 1)

    def test_a_job_of_the_first_run_can_be_measured_again(self):
        added = samples.results() | {"date": "2026-05-06 07:08 UTC"}
        found = merged(added=added, names=["idle"])
        self.assertEqual(parts.of_job(found, "idle")["date"], "2026-05-06 07:08 UTC")
        self.assertEqual(len(found["runs"]), len(samples.results()["runs"]))

    def test_figures_of_a_server_that_is_not_measured_again_are_not_lost(self):
        added = samples.results()
        added["runs"] = [run for run in added["runs"] if run["peer"] != "hyper1"]
        with self.assertRaisesRegex(Failure, "idle: the figures of hyper1 would be lost"):
            merged(added=added, names=["idle"])

    def test_a_run_that_was_broken_off_is_refused(self):
        added = samples.light_results()
        added["runs"] = [run for run in added["runs"] if run["round"] == 1]
        with self.assertRaisesRegex(Failure, "1 of 2 rounds of light-256"):
            merged(added=added)
        added["runs"] = []
        with self.assertRaisesRegex(Failure, "0 of 2 rounds"):
            merged(added=added)

    def test_a_job_that_the_run_has_not_is_refused(self):
        with self.assertRaisesRegex(Failure, "no job light-1"):
            merged(names=["light-1"])

    def test_results_of_several_runs_are_not_added(self):
        with self.assertRaises(Failure):
            merged(added=merged())

    def test_a_server_that_the_added_run_leaves_out_is_listed_with_the_reason(self):
        added = samples.light_results()
        added["runs"] = [run for run in added["runs"] if run["peer"] not in ("hyper1", "netty-epoll")]
        added["peers"] = {name: peer for name, peer in added["peers"].items() if name not in ("hyper1", "netty-epoll")}
        added["skipped"] = [{"peer": "netty", "title": "Netty", "reason": "mvn not found"}]
        found = merged(added=added)
        self.assertEqual(figures.failures(found, "light-256", "netty-epoll"), [("mvn not found", 0)])
        reason = "the run of 2026-03-04 05:06 UTC leaves it out"
        self.assertEqual(figures.failures(found, "light-256", "hyper1"), [(reason, 0)])

    def test_a_server_that_only_the_added_run_has_is_added(self):
        results = samples.results()
        del results["peers"]["hyper1"]
        results["runs"] = [run for run in results["runs"] if run["peer"] != "hyper1"]
        self.assertIn("hyper1", merged(results)["peers"])

    def test_another_machine_is_listed(self):
        added = samples.light_results()
        added["machine"] |= {"kernel": "7.0.0"}
        self.assertEqual(tables.markdown(merged(added=added)).count("Linux 7.0.0"), 1)
        self.assertEqual(tables.markdown(merged()).count("Linux 6.1.0"), 1)

    def test_other_versions_are_listed(self):
        added = samples.light_results()
        added["peers"]["hyper1"]["version"] = "1.1"
        found = merged(added=added)
        self.assertEqual(parts.differences(found, found["parts"][0]), ["hyper & friends had the version “1.1”"])
        self.assertIn("In that run hyper & friends had the version “1.1”.", tables.markdown(found))


class Rendering(unittest.TestCase):
    def test_tables_name_the_run_of_an_added_job(self):
        text = tables.markdown(merged())
        self.assertIn("2026-03-04 05:06 UTC, commit abc1234; 2 interleaved rounds of 5 s a figure", text)
        section = text[text.index("## One light connection beside 256") : text.index("## One light connection beside 500")]
        self.assertIn("From the run of 2026-03-04 05:06 UTC.", section)
        self.assertIn("SCHED_FIFO", section)
        self.assertEqual(text.count("From the run of"), 2)
        self.assertNotIn("From the run of", tables.markdown(samples.results()))

    def test_every_row_has_as_many_cells(self):
        rows = [line.count(" | ") for line in tables.summary(merged()).splitlines() if line.startswith("| ")]
        self.assertEqual(len(set(rows[:6])), 1)
        self.assertEqual(len(set(rows[6:])), 1)
        text = tables.markdown(merged())
        section = text[text.index("## One light connection beside 500") : text.index("## Idle")]
        rows = [line.count(" | ") for line in section.splitlines() if line.startswith("| ")]
        self.assertEqual((len(rows), len(set(rows))), (2 + 3, 1))
        self.assertIn("- floor: not measured: it is too quick", section)

    def test_the_summary_has_p50_and_p99_of_the_variant_with_the_lowest_p99(self):
        added = samples.light_results()
        for results in (added, base := samples.results()):
            results["peers"]["tidegate-epoll"] = results["peers"]["tidegate-uring"] | {"title": "Tidegate, epoll"}
        for run in [run for run in added["runs"] if run["peer"] == "tidegate-uring"]:
            other = samples.light_figures(0.2) | {"light_50": 1.0}
            added["runs"].append(run | {"peer": "tidegate-epoll", "figures": other})
        text = tables.summary(merged(base, added))
        line = next(line for line in text.splitlines() if line.startswith("| **Tidegate") and "ms" in line)
        cost = samples.COSTS["tidegate-uring"] * 1.15
        self.assertIn(f"**{cost * 10:.2f} ms** | **{cost * 30:.2f} ms**", line)
        self.assertIn("every 2 ms", text)
        self.assertIn("2026-03-04", text)

    def test_aims_of_light_jobs_need_the_jobs(self):
        titles = [row["title"] for row in figures.aims(merged())]
        self.assertIn("light beside 500 heavy, p99", titles)
        self.assertNotIn("light beside 500 heavy, p99", [row["title"] for row in figures.aims(samples.results())])
        row = next(row for row in figures.aims(merged()) if row["title"] == "light beside 500 heavy, p99")
        self.assertEqual([(check["to"], check["reached"]) for check in row["checks"]], [("rival", True)])

    def test_the_page_has_a_chart_for_each_light_job(self):
        text = page.html(merged())
        self.assertIn("one light connection beside 256 &lt;heavy&gt; ones".capitalize(), text)
        self.assertIn("From the run of 2026-03-04 05:06 UTC.", text)
        drawings = [part.split("</svg>")[0] + "</svg>" for part in text.split("<svg")[1:]]
        self.assertEqual(len(drawings), 1 + 3 + 3 + 1 + 2)
        for drawing in drawings:
            xml.fromstring("<svg" + drawing)

    def test_a_run_of_light_jobs_alone_can_be_rendered(self):
        added = samples.light_results()
        page.html(added)
        xml.fromstring(page.summary_svg(added))
        self.assertTrue(tables.summary(added).startswith("# The main figures\n\nLatency of one light connection"))


if __name__ == "__main__":
    unittest.main()
