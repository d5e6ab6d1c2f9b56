"""Which latencies the light client counts, with a clock that is made up, and what its job yields."""

import types
import unittest
from unittest import mock

import heavy_client
import light
import light_client
from bench import jobs, load
from servers import Failure


class Clock:
    """Time that passes where the test says so."""

    def __init__(self):
        self.now = 100.0
        self.sent = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def answer_after(self, milliseconds):
        """An exchange whose answers take so long, one after the other; the last one holds for the rest."""
        rest = list(milliseconds)

        def exchange():
            self.sent.append(self.now)
            self.now += (rest.pop(0) if len(rest) > 1 else rest[0]) / 1000

        return exchange


def visited(count, *milliseconds):
    """Latencies at an interval of 2 ms, in whole microseconds: of all scheduled requests, and of those that were sent."""
    clock = Clock()
    found = light_client.send_on_schedule(clock.answer_after(milliseconds), 0.002, count, clock, clock.sleep)
    return [[round(latency * 1e6) for latency in latencies] for latencies in found[:2]] + [clock]


class Schedule(unittest.TestCase):
    def test_a_quick_server_answers_each_request_on_time(self):
        scheduled, sent, clock = visited(5, 1)
        self.assertEqual(scheduled, [1000] * 5)
        self.assertEqual(sent, scheduled)
        gaps = [round((after - before) * 1e6) for before, after in zip(clock.sent, clock.sent[1:])]
        self.assertEqual(gaps, [2000] * 4)

    def test_requests_that_fall_due_during_a_stall_count_from_their_scheduled_times(self):
        scheduled, sent, _ = visited(12, 1, 9, 1)
        # The second is sent at 2 ms and answered at 11: those due at 4, 6 and 8 waited until then. The one due at 10 is sent
        # at 11, and answered at 12.
        self.assertEqual(scheduled[:6], [1000, 9000, 7000, 5000, 3000, 2000])
        self.assertEqual(sent[:3], [1000, 9000, 2000])
        self.assertEqual(scheduled[6:], [1000] * 6)

    def test_every_scheduled_request_has_one_latency(self):
        for slow in (0.5, 1.9, 2, 3.3, 7, 50, 1000):
            scheduled, sent, _ = visited(40, slow)
            self.assertEqual(len(scheduled), 40, slow)
            self.assertLessEqual(len(sent), 40)

    def test_a_slow_server_gets_no_backlog(self):
        scheduled, sent, _ = visited(500, 10)
        self.assertLessEqual(max(scheduled), 12_001)
        self.assertLessEqual(max(sent), 12_001)
        self.assertEqual(len(sent), 101)

    def test_how_late_a_request_is_sent_is_counted_apart_from_what_an_answer_delays(self):
        clock = Clock()
        oversleep = lambda seconds: clock.sleep(seconds + 0.0001)
        found = light_client.send_on_schedule(clock.answer_after([1, 9, 1]), 0.002, 8, clock, oversleep)
        self.assertEqual({round(late * 1e6) for late in found[2]}, {100})
        self.assertLess(len(found[2]), len(found[1]))

    def test_percentiles_are_of_the_nearest_rank(self):
        figures = light_client.figures([number / 1e6 for number in range(1, 1001)])
        self.assertEqual([round(figures[key]) for key in ("50", "99", "99.9", "max", "count")], [500, 990, 999, 1000, 1000])
        self.assertEqual([round(light_client.figures([7e-6])[key]) for key in ("50", "99", "max")], [7, 7, 7])
        self.assertEqual(light_client.figures([]), {"count": 0})


class Fairness(unittest.TestCase):
    def test_the_slowest_connection_is_held_against_the_mean(self):
        found = heavy_client.shares([10, 10, 10], [110, 60, 150])
        self.assertAlmostEqual(found["slowest"], 50 / (290 / 3))
        self.assertAlmostEqual(found["fastest"], 140 / (290 / 3))
        self.assertIsNone(heavy_client.shares([5, 5], [5, 5]))

    def test_a_window_lasts_until_the_mean_connection_has_had_enough_batches(self):
        class Slow(heavy_client.Load):
            """Each drive brings the first connection two pipelines, and the second one a pipeline."""

            def __init__(self):
                self.connections = [types.SimpleNamespace(batch=256, done=number) for number in (5, 7)]
                self.drives = 0

            def drive_until(self, _):
                self.drives += 1
                for connection, pipelines in zip(self.connections, (2, 1)):
                    connection.done += pipelines * connection.batch

        load = Slow()
        load.drive_window(1, 20)
        # Three pipelines of both connections each time, and 40 in all.
        self.assertEqual(load.drives, 14)

    def test_a_window_in_which_nothing_is_answered_is_a_failure(self):
        class Silent(heavy_client.Load):
            def __init__(self):
                self.connections = [types.SimpleNamespace(batch=256, done=0)]

            def drive_until(self, _):
                now[0] += 1

        now = [0.0]
        with mock.patch.object(heavy_client.time, "monotonic", lambda: now[0]):
            with self.assertRaises(Failure):
                Silent().drive_window(1, 20)


class LightJob(unittest.TestCase):
    def test_the_heavy_load_is_that_of_the_deepest_job_and_outlasts_the_light_client(self):
        known = {job.name: job for job in jobs.all_jobs(64)}
        self.assertEqual(known["light-500"].work, load.Work("/plaintext", 256, 500))
        self.assertEqual(known["light-256"].work._replace(connections=64), known["plaintext-256"].work)
        heavies = []

        def beside(server, heavy, core, seconds):
            heavies.append(heavy)
            one = {"count": 10, "50": 1.0, "90": 2.0, "99": 3.0, "99.9": 4.0, "max": 5.0}
            return {"scheduled": one, "sent": one | {"count": 4}, "late": {"count": 0}, "priority": "fifo"}, 0, OUTPUT

        options = types.SimpleNamespace(generator=load.Tidegate("t"), load_core="1", seconds=3)
        server = mock.MagicMock(port=1)
        with mock.patch.multiple(jobs, check=mock.DEFAULT, warm_up=mock.DEFAULT):
            with mock.patch.object(jobs.light, "beside", beside):
                figures = jobs.measure_load(server, known["light-256"], options, 1)
        self.assertIn("5s", heavies[0])
        self.assertEqual((figures["light_50"], figures["light_99"], figures["light_max"]), (1.0, 3.0, 5.0))
        self.assertEqual((figures["light_count"], figures["light_sent"], figures["light_late_99"]), (10, 4, None))
        self.assertEqual(figures["requests_per_second"], 8)


class Servers(unittest.TestCase):
    def test_a_server_is_named_or_has_the_name_of_its_program(self):
        found = light.commands_from(["a=./one x=1", "env TIDEGATE_BACKEND=epoll ./two", "dir/three --port=1"])
        self.assertEqual(list(found), ["a", "2 env", "3 three"])
        self.assertEqual(found["a"], "./one x=1")
        self.assertEqual(list(light.commands_from(None)), ["tidegate"])
        with self.assertRaises(Failure):
            light.commands_from(["a=x", "a=y"])


OUTPUT = '{"requests": 12, "seconds": 1.5, "errors": {}, "latency": {"max": 4.0, "percentiles": {}}}'

if __name__ == "__main__":
    unittest.main()
