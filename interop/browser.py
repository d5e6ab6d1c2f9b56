"""A headless Chromium, by the WebDriver protocol of chromedriver (https://www.w3.org/TR/webdriver2/), and the DevTools
Protocol for screens."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

import program
from program import Failure

START_SECONDS_MAX = 60
REQUEST_SECONDS_MAX = 120
# These bounds end a run that hangs. A busy machine needs several times what an idle one does.
SCRIPT_SECONDS_MAX = 110
PATIENCE_SECONDS = 120
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
ARGUMENTS += ["--no-first-run", "--disable-background-networking", "--no-proxy-server"]
# chromedriver is asked directly, whatever proxy the environment names.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Browser:
    """A context manager: one window of a browser that ends with it."""

    def __init__(self, accept_insecure=False, doh=None):
        """`accept_insecure`: certificates of any signer. `doh`: the URL of the DNS server, which alone is asked."""
        self.accept_insecure, self.doh = accept_insecure, doh
        (self.port,) = program.free_ports(1)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # A process group of its own, which the browser shares.
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"], start_new_session=True, **quiet)
        self.session = None

    def __enter__(self):
        try:
            self._await_driver()
            options = {"args": ARGUMENTS}
            if self.doh:
                # The process that resolves names sees certificates for itself.
                options["args"] = [*ARGUMENTS, "--ignore-certificate-errors"]
                options["localState"] = {"dns_over_https.mode": "secure", "dns_over_https.templates": self.doh}
            wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            wanted["acceptInsecureCerts"] = self.accept_insecure
            wanted["timeouts"] = {"script": SCRIPT_SECONDS_MAX * 1000, "pageLoad": SCRIPT_SECONDS_MAX * 1000}
            made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._end()
            raise
        self.session = f"/session/{made['sessionId']}"
        return self

    def __exit__(self, *_):
        try:
            self._send("DELETE", self.session)
        except (OSError, Failure):
            pass
        finally:
            self._end()

    def _await_driver(self):
        begun = time.monotonic()
        while time.monotonic() - begun < START_SECONDS_MAX and self.driver.poll() is None:
            try:
                return self._send("GET", "/status")
            except (OSError, Failure):
                time.sleep(0.1)
        raise Failure("chromedriver does not start")

    def _end(self):
        """Ends chromedriver and its browser."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()

    def _send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with OPENER.open(request, timeout=REQUEST_SECONDS_MAX) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise Failure(error.read().decode(errors="replace")[:500]) from None

    def open(self, url):
        self._send("POST", f"{self.session}/url", {"url": url})

    def run(self, script, *arguments):
        """The value that a script returns."""
        return self._send("POST", f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command, **parameters):
        return self._send("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def counters(self):
        """What is in memory of the page, after a collection: nodes, listeners, documents."""
        self.devtools("HeapProfiler.enable")
        self.devtools("HeapProfiler.collectGarbage")
        return self.devtools("Memory.getDOMCounters")

    def errors(self):
        """What the console has shown, apart from notes."""
        lines = self._send("POST", f"{self.session}/se/log", {"type": "browser"})
        return [line["message"] for line in lines if line["level"] in ("SEVERE", "WARNING")]

    def screen(self, width, theme, height=1000):
        """Sets the size of the screen and its theme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.devtools("Emulation.setDeviceMetricsOverride", **metrics)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.devtools("Page.captureScreenshot", format="png")["data"]))

    def type(self, text):
        """Presses keys in the element that has the focus."""
        keys = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._send("POST", f"{self.session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": keys}]})

    def until(self, script, what, *arguments, seconds=PATIENCE_SECONDS):
        """Waits until a script returns something true, and returns it."""
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            value = self.run(script, *arguments)
            if value:
                return value
            time.sleep(0.05)
        raise Failure(f"not within {seconds} seconds: {what}; the page shows {self.run('return document.body.innerText')!r}")
