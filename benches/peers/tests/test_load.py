"""What the load generators say, read."""

import unittest

from bench import load

WRK = """Running 1s test @ http://127.0.0.1:1/
load-result {"requests": 12, "connect": 0, "read": 3, "write": 0, "timeout": 0, "status": 0}
load-latency {"seconds": 1.5, "max": 4000, "50": 20, "90": 30, "99": 0, "99.9": 0}
"""
TIDEGATE = """a line for the terminal
{"requests": 12, "seconds": 1.5, "errors": {"connect": 0, "length": 2},
 "latency": {"max": 4000.0, "percentiles": {"50": 20.5, "90": 30.0, "99": 40.0, "99.9": 50.0, "99.99": 60.0}}}
done
"""


class Reading(unittest.TestCase):
    def test_what_wrk_says(self):
        figures, errors = load.Wrk().read(WRK)
        self.assertEqual((figures["requests"], figures["seconds"], figures["latency_max"]), (12, 1.5, 4000))
        self.assertEqual((figures["latency_90"], figures["latency_99"]), (30, None))
        self.assertEqual(errors, {"read": 3})

    def test_what_our_own_says(self):
        figures, errors = load.Tidegate().read(TIDEGATE)
        self.assertEqual((figures["requests"], figures["latency_50"], figures["latency_99.9"]), (12, 20.5, 50.0))
        self.assertEqual(errors, {"length": 2})

    def test_an_output_without_figures_is_an_error(self):
        for generator, output in [(load.Wrk(), "unable to connect"), (load.Tidegate(), "error: no such flag")]:
            with self.assertRaises((KeyError, ValueError)):
                generator.read(output)

    def test_both_are_asked_for_the_same_work(self):
        work = load.Work("/echo", 1, 256, body_bytes=4096)
        ours, wrk = load.Tidegate("tidegate").command("http://h", work, 3), load.Wrk().command("http://h", work, 3)
        self.assertEqual(ours[-1], "http://h/echo")
        self.assertEqual(wrk[-2:], ["/echo", "4096"])
        self.assertIn("x" * 4096, ours)


if __name__ == "__main__":
    unittest.main()
