"""Adds jobs of one run to the results of another, and records which run a job's figures are from.

A ratio is taken within the rounds of one job, so a job is the least that can be added: all its figures come from one run,
with the rounds, settings, machine and versions of that run. `results["parts"]` describes the added runs as a run describes
itself, with the jobs that were taken from each. Jobs in no part are from the run that `results` itself describes.
"""

from servers import Failure

# The properties of a server that may differ between two runs.
OF_SERVERS = {"version": "version", "command": "command", "configured": "configuration"}


def of_job(results, job):
    """The description of the run that a job's figures are from: its date, machine, settings and servers."""
    return next((part for part in results.get("parts", []) if job in part["jobs"]), results)


def merged(results, added, names, order):
    """`results` with the jobs `names` of the run `added`, in place of figures of the same jobs; `order` is that of all
    jobs. Raises a `Failure` where the added run is not complete, or figures would be lost."""
    if added.get("parts"):
        raise Failure("the results to add are put together from several runs: add each of those runs")
    for job in names:
        check_complete(added, job)
        check_nothing_lost(results, added, job)
    kept_parts = []
    for part in results.get("parts", []):
        jobs = {job: title for job, title in part["jobs"].items() if job not in names}
        kept_parts += [dict(part, jobs=jobs)] if jobs else []
    own = {key: value for key, value in added.items() if key not in ("format", "runs", "without")}
    titles = results["jobs"] | {job: added["jobs"][job] for job in names}
    place = {job: number for number, job in enumerate(order)}
    return results | {
        "jobs": dict(sorted(titles.items(), key=lambda entry: place.get(entry[0], len(place)))),
        "peers": results["peers"] | {name: peer for name, peer in added["peers"].items() if name not in results["peers"]},
        "without": [entry for entry in results["without"] if entry["job"] not in names]
        + [entry for entry in added["without"] if entry["job"] in names]
        + [entry for job in names for entry in not_measured(results, added, job)],
        "parts": kept_parts + [own | {"jobs": {job: added["jobs"][job] for job in names}}],
        "runs": [run for run in results["runs"] if run["job"] not in names]
        + [run for run in added["runs"] if run["job"] in names],
    }


def check_complete(added, job):
    if job not in added["jobs"]:
        raise Failure(f"the run to add has no job {job}")
    wanted = added["settings"]["memory_rounds" if job in ("idle", "stuck") else "rounds"]
    wanted = min(wanted, added["settings"]["rounds"])
    played = max((run["round"] for run in added["runs"] if run["job"] == job), default=0)
    if played < wanted:
        raise Failure(f"the run to add has {played} of {wanted} rounds of {job}")


def check_nothing_lost(results, added, job):
    def measured(source):
        return {run["peer"] for run in source["runs"] if run["job"] == job and "figures" in run}

    lost = sorted(measured(results) - {run["peer"] for run in added["runs"] if run["job"] == job})
    if lost:
        raise Failure(f"{job}: the figures of {', '.join(lost)} would be lost, which the run to add does not measure")


def not_measured(results, added, job):
    """An entry for each server that the added run does not have, with the reason."""
    skipped = {entry["peer"]: entry["reason"] for entry in added["skipped"]}
    for name, peer in results["peers"].items():
        if name not in added["peers"]:
            reason = skipped.get(peer["peer"], f"the run of {added['date']} leaves it out")
            yield {"peer": name, "job": job, "reason": reason}


def differences(results, part):
    """The differences between the servers of a part and those of the same names in `results`, as texts."""
    found = []
    for name, peer in part["peers"].items():
        other = results["peers"].get(name, peer)
        for key, noun in OF_SERVERS.items():
            if peer[key] != other[key]:
                found.append(f"{peer['title']} had the {noun} “{peer[key]}”")
    return found
