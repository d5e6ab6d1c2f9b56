#!/usr/bin/env python3
"""The interop client of grpc-go against `examples/grpc_interop`: every case that needs no credentials of a cloud, in clear
and over TLS."""

import argparse
import concurrent.futures
import contextlib
import os
import shlex
import subprocess
import tempfile

import program
import servers
import tls  # of `benches`
from program import Failure

# Where `cargo xtask ci` installs it. The command is called `client`.
CLIENT = str(program.ROOT / "target/tools/grpc_interop/bin/client")

SECONDS_MAX = 120
AT_A_TIME = 8
SOAK = ["--soak_iterations=20", "--soak_overall_timeout_seconds=100"]
# A busy machine is no fault of the server.
SOAK += ["--soak_per_iteration_max_acceptable_latency_ms=30000"]
REPORTS = ['--service_config_json={"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}']
CASES = {
    "empty_unary": [],
    "large_unary": [],
    "client_streaming": [],
    "server_streaming": [],
    "ping_pong": [],
    "empty_stream": [],
    "timeout_on_sleeping_server": [],
    "cancel_after_begin": [],
    "cancel_after_first_response": [],
    "status_code_and_message": [],
    "special_status_message": [],
    "custom_metadata": [],
    "unimplemented_method": [],
    "unimplemented_service": [],
    "pick_first_unary": [],
    "rpc_soak": SOAK,
    "channel_soak": SOAK,
    "orca_per_rpc": REPORTS,
    "orca_oob": REPORTS,
}


def run(case, port, flags):
    command = [CLIENT, f"--test_case={case}", "--server_host=127.0.0.1", f"--server_port={port}", *CASES[case], *flags]
    code, output, errors = program.run(command, SECONDS_MAX)
    if code != 0:
        raise Failure(f"{shlex.join(command)}: code {code}\n{output.decode(errors='replace')}{errors}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--example", help="the server, which is built unless it is given")
    parser.add_argument("--backends", nargs="+", default=program.BACKENDS)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    options = parser.parse_args()
    program.need(CLIENT)
    if options.example is None:
        options.example = program.build_example("grpc_interop")
    with contextlib.ExitStack() as stack:
        certificate = tls.Certificate(stack.enter_context(tempfile.TemporaryDirectory()))
        files = [certificate.cert, certificate.key]
        trusting = ["--use_tls", "--use_test_ca", f"--ca_file={certificate.cert}", "--server_host_override=localhost"]
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(AT_A_TIME))
        runs = []
        for backend in options.backends:
            for given, flags in [([], []), (files, trusting)]:
                command = ["env", f"TIDEGATE_BACKEND={backend}", options.example, "127.0.0.1:0", *given]
                server = stack.enter_context(servers.Server(shlex.join(command)))
                runs += [pool.submit(run, case, server.port, flags) for case in options.cases]
        try:
            for each in concurrent.futures.as_completed(runs):
                each.result()
        finally:
            pool.shutdown(cancel_futures=True)
    print(f"{', '.join(options.backends)}: {len(options.cases)} cases in clear and over TLS", flush=True)


if __name__ == "__main__":
    servers.run(main)
