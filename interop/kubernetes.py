#!/usr/bin/env python3
"""The manifest of `deploy/kubernetes`: against the schemas of Kubernetes, the image, and the program.

kubernetes-validate has the schemas with it, so nothing is asked of the network. What no schema knows is checked here:
the numbers of ports and of the user are those of the image, the time for the end is enough, and the program takes the
arguments and answers the probes as the kubelet sends them.
"""

import argparse
import http.client
import json
import pathlib
import re
import shlex
import shutil
import tempfile
import time

import program
import servers
from image import Image
from program import ROOT, Failure

MANIFEST = ROOT / "deploy/kubernetes/tidegate.yaml"
# The oldest in which the kubelet sleeps for a container, and the newest of the validator.
VERSIONS = ["1.30.0", "1.37.0"]
DRAIN_SECONDS = 10
SECONDS_MAX = 120

program.use_tools("kubernetes-validate/bin")


def expect(what, found, expected):
    if found != expected:
        raise Failure(f"{what}: {found!r}, not {expected!r}")


def validate(path, version):
    """Whether the schemas of a version allow the file, and what the validator prints."""
    code, output, errors = program.run(["kubernetes-validate", "--strict", "-k", version, str(path)], SECONDS_MAX)
    return code == 0, output.decode() + errors


def check_schemas():
    for version in VERSIONS:
        passed, said = validate(MANIFEST, version)
        if not passed:
            raise Failure(f"Kubernetes {version}:\n{said}")
        print(f"  Kubernetes {version}: {said.count('passed')} objects")
    # The validator has to notice a mistake.
    for right, wrong in [("readinessProbe:", "readynessProbe:"), ("periodSeconds: 2", "periodSeconds: often")]:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(MANIFEST.read_text().replace(right, wrong, 1))
            file.flush()
            if validate(file.name, VERSIONS[-1])[0]:
                raise Failure(f"{wrong!r} passes")


def objects():
    """The objects of the manifest by their kind, read by the YAML of the validator."""
    python = pathlib.Path(shutil.which("kubernetes-validate")).with_name("python3")
    code = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)"
    status, output, errors = program.run([str(python), "-c", code, str(MANIFEST)], SECONDS_MAX)
    if status:
        raise Failure(f"{MANIFEST}: {errors}")
    return {each["kind"]: each for each in json.loads(output)}


def check_image(pod, container):
    recipe = Image(ROOT / "deploy/container/Containerfile")
    user = pod["securityContext"]
    expect("the user", (user["runAsUser"], user["runAsGroup"]), recipe.user)
    expect("the arguments", container["args"], recipe.command)
    expect("the ports", [port["containerPort"] for port in container["ports"]], recipe.ports)
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    if pod["terminationGracePeriodSeconds"] < sleep + DRAIN_SECONDS + 2:
        raise Failure("the replica is killed while it drains")


def check_labels(found):
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        expect("a selector", selector, labels)


def check_program(container, binary):
    """The arguments at free ports of this machine, and the probes as the kubelet sends them to the address of a pod."""
    arguments = [re.sub(r"^0\.0\.0\.0:\d+$", "127.0.0.1:0", argument) for argument in container["args"]]
    with servers.Server(shlex.join([binary, *arguments])) as server:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container[name]["httpGet"]
            expect(f"the port of {name}", probe["port"], "admin")
            client = http.client.HTTPConnection("127.0.0.1", admin_port(server), timeout=SECONDS_MAX)
            headers = {"Host": "10.1.2.3:9090", "User-Agent": "kube-probe/1.37", "Connection": "close"}
            client.request("GET", probe["path"], headers=headers)
            expect(f"{name} of {probe['path']}", client.getresponse().status, 200)
            client.close()
    print("  the probes get 200")


def admin_port(server):
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        if found := re.search(r"admin at http://127\.0\.0\.1:(\d+)", "".join(server.last_lines)):
            return int(found[1])
        time.sleep(0.01)
    raise Failure(f"no line of the admin: {list(server.last_lines)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program.PROGRAM, help="the program `tidegate`")
    options = parser.parse_args()
    program.need("kubernetes-validate")
    check_schemas()
    found = objects()
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    check_image(pod, container)
    check_labels(found)
    check_program(container, options.program)


if __name__ == "__main__":
    servers.run(main)
