"""Made-up results in the form in which a campaign leaves them."""

COSTS = {"tidegate-uring": 0.17, "hyper1": 1.0, "netty-epoll": 1.02, "floor": 0.08}
IDLE = {"tidegate-uring": 254, "hyper1": 11_530, "netty-epoll": 2_100, "floor": 29}


def peer(title, folder, parses_headers=True, collected=False):
    return {
        "title": title,
        "peer": folder,
        "peer_title": title,
        "language": "C & <C>",
        "version": "1.0",
        "configured": 'one loop | "no-delay"',
        "collected": collected,
        "parses_headers": parses_headers,
        "warm_up_seconds": 2,
        "command": f"{folder} 127.0.0.1:0",
    }


def load_figures(cost):
    latencies = {"latency_50": 900.0, "latency_90": 1200.0, "latency_99": None, "latency_99.9": 2e6}
    latencies["latency_max"] = cost * 1e6
    cpu = {"cpu": cost, "cpu_user": cost * 0.6, "cpu_system": cost * 0.4}
    return {"requests": 1000, "seconds": 3.0, "requests_per_second": 1e6 / cost, **cpu, **latencies}


def results(idle=None):
    """Three rounds of two jobs, of which each round is a little slower than the one before."""
    runs = []
    for number in (1, 2, 3):
        for name, cost in COSTS.items():
            for job in ("plaintext-256", "plaintext-16"):
                figures = load_figures(cost * (1 + number / 10))
                runs.append({"round": number, "peer": name, "job": job, "figures": figures})
        for name, each in (idle or IDLE).items():
            figures = {"resident_each": each, "resident_start": 1 << 20}
            runs.append({"round": number, "peer": name, "job": "idle", "figures": figures})
    return {
        "format": 1,
        "date": "2026-01-02 03:04 UTC",
        "machine": {"cpu": "A <fast> one", "cores": 2, "kernel": "6.1.0", "memory_bytes": 8 << 30},
        "settings": {
            "rounds": 3,
            "memory_rounds": 3,
            "seconds": 3,
            "connections": 256,
            "idle": 10_000,
            "stuck": 1_000,
            "generator": "wrk",
            "server_core": "0",
            "load_core": "1",
        },
        "jobs": {"plaintext-256": "plaintext, 256 deep", "plaintext-16": "plaintext, 16 deep", "idle": "idle connections"},
        "peers": {
            "tidegate-uring": peer("Tidegate, io_uring", "tidegate"),
            "hyper1": peer("hyper & friends", "hyper1"),
            "netty-epoll": peer("Netty, epoll", "netty", collected=True),
            "floor": peer("floor", "floor", parses_headers=False),
        },
        "skipped": [{"peer": "h2o", "title": "h2o", "reason": "h2o not found (Debian: h2o)"}],
        "without": [{"peer": "floor", "job": "plaintext-16", "reason": "it is no part of it"}],
        "runs": runs,
    }


def light_figures(cost):
    each = {"light_50": cost * 1e4, "light_90": cost * 2e4, "light_99": cost * 3e4, "light_99.9": cost * 4e4}
    sent = {"light_sent": 700, "light_sent_50": cost * 1e4, "light_sent_99": cost * 3e4, "light_late_99": None}
    heavy = {"requests": 1000, "seconds": 5.0, "requests_per_second": 200.0, "light_priority": "fifo"}
    return {"light_count": 1500, "light_max": cost * 5e4, **each, **sent, **heavy}


def light_results(date="2026-03-04 05:06 UTC"):
    """A later run of two rounds, of the light jobs alone."""
    found = results()
    found["jobs"] = {f"light-{heavy}": f"one light connection beside {heavy} <heavy> ones" for heavy in (256, 500)}
    found["settings"] |= {"rounds": 2, "memory_rounds": 2, "seconds": 5, "light_interval_milliseconds": 2}
    found["without"] = [{"peer": "floor", "job": "light-500", "reason": "it is too quick"}]
    found["runs"] = [
        {"round": number, "peer": name, "job": job, "figures": light_figures(cost * (1 + number / 10))}
        for number in (1, 2)
        for job in found["jobs"]
        for name, cost in COSTS.items()
        if (name, job) != ("floor", "light-500")
    ]
    return found | {"date": date, "revision": "abc1234"}


def add_failure(results, name, job, number, reason):
    """In the place of what that round had."""
    kept = [run for run in results["runs"] if (run["peer"], run["job"], run["round"]) != (name, job, number)]
    results["runs"] = kept + [{"round": number, "peer": name, "job": job, "failure": reason}]
