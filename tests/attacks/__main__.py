"""Every known attack on a shared machine, against a real daemon: ``python -m attacks [NAME ...]``.

Runs on loopback and in a directory of its own, as root, because it needs other users. Each attack
runs during an honest user's training, whose answer must stay right and in time. The table has a
line for each figure with its limit; the exit code is 1 where a limit was exceeded.

Limits in seconds are for a machine with an idle core. Before and after each attack an unattacked
daemon shows how many times later it is here, because others use the machine: each limit is
multiplied by that.
CPU limits are of the daemon's own CPU time and stay.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from attacks.floods import empty_folders, growing, records
from support.daemon import daemon_process
from support.hung import hung
from support.namespaces import possible
from support.records import environment, wait_until
from support.users import ALICE, MALLORY, Process, training
from support.web import Authority, ask

RSS_MB, CORE, LATE_SECONDS = 150.0, 0.2, 2.0
STATUS_MB, METRICS_MB, ANSWER_SECONDS = 4.0, 16.0, 2.0
WATCHED_SECONDS = 12.0
IDLE_LATE_SECONDS = 0.35  # unattacked, on an idle machine: the interval, and the pause of `late`
_SIOCSIFFLAGS = 0x8914
HONEST = "gpt2"


class Row(NamedTuple):
    """One figure of one attack, and its limit; both in the unit that ``what`` names."""

    what: str
    seen: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.seen <= self.limit

    def on_machine(self, slowdown: float) -> Row:
        """With a limit for a machine that is so many times slower."""
        in_seconds = self.what.endswith("(s)")
        return self._replace(limit=self.limit * slowdown) if in_seconds else self


class Victim(NamedTuple):
    """A daemon, and an honest user's living training that it watches."""

    pid: int
    url: str
    alice: Process


@contextmanager
def place() -> Iterator[Path]:
    """A record directory that is open to all, in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        Path(made).chmod(0o1777)
        yield Path(made)


@contextmanager
def victim(directory: Path, *arguments: str) -> Iterator[Victim]:
    """A fresh daemon over ``directory``, with a history, and a training that began before it."""
    options = ("--dir", str(directory), *arguments)
    with (
        tempfile.TemporaryDirectory() as state,
        training(ALICE, directory, HONEST) as (alice, _),
        daemon_process(*options, before=os.setpgrp, WARMWATCH_STATE=state) as (process, url),
    ):
        wait_until(lambda: ask(url, "/-/healthy").status == 200)
        yield Victim(process.pid, url, alice)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def timed(url: str, path: str) -> tuple[float, float, int]:
    """Seconds, megabytes and the status code of one answer."""
    began = time.monotonic()
    try:
        with urllib.request.urlopen(url + path, timeout=60) as reply:
            code, size = reply.status, len(reply.read())
    except urllib.error.HTTPError as error:
        code, size = error.code, len(error.read())
    return time.monotonic() - began, size / 1e6, code


class Lateness:
    """How late ``/status`` counts the steps of the honest training, in seconds."""

    def __init__(self, one: Victim) -> None:
        self._one, self._steps = one, 1
        self.longest, self.unknown = 0.0, 0

    def step(self) -> None:
        """Have the training take one more step, and wait until it is counted."""
        self._one.alice.do("warmwatch.step()")
        self._steps, began, counted = self._steps + 1, time.monotonic(), 0
        while counted < self._steps and time.monotonic() < began + 30:
            reply = ask(self._one.url, f"/status?run={HONEST}")
            self.unknown += reply.status == 404
            if reply.status == 200:
                counted = json.loads(reply.body)["runs"][0]["ranks"][0]["steps"]
            time.sleep(0.1)
        self.longest = max(self.longest, time.monotonic() - began)


def slowdown() -> float:
    """How many times later an unattacked daemon is than on an idle machine; at least 1."""
    with place() as directory, victim(directory) as one:
        late = Lateness(one)
        for _ in range(8):
            late.step()
            time.sleep(0.2)
    return max(1.0, late.longest / IDLE_LATE_SECONDS)


def watched(one: Victim, late: Lateness | None = None) -> Iterator[Row]:
    """What the honest user sees for so long, and what the daemon costs."""
    late = late or Lateness(one)
    began, cpu = time.monotonic(), cpu_seconds(one.pid)
    while time.monotonic() < began + WATCHED_SECONDS:
        late.step()
        time.sleep(0.5)
    share = (cpu_seconds(one.pid) - cpu) / (time.monotonic() - began)
    yield Row("404 for a living run", late.unknown, 0)
    yield Row("honest step late (s)", late.longest, LATE_SECONDS)
    yield Row("CPU (cores)", share, CORE)
    for path, most in (("/status", STATUS_MB), ("/metrics", METRICS_MB)):
        took, size, _ = timed(one.url, path)
        yield Row(f"{path} (MB)", size, most)
        yield Row(f"{path} (s)", took, ANSWER_SECONDS)
    yield Row("resident, peak (MB)", peak_mb(one.pid), RSS_MB)
    yield Row("warmwatch status: exit code 5", status_code(one.url) == 5, 0)


def status_code(url: str) -> int:
    address = url.removeprefix("http://")
    return command("status", HONEST, "--address", address)[0]


def command(*words: str, **variables: str) -> tuple[int, float, str]:
    """The exit code of a command, its seconds, and what it printed."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "warmwatch_monitor", *words],
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, time.monotonic() - began, done.stdout + done.stderr


def flood(
    make: Callable[[Path], object], *, crowded: bool = False, listed_after: float = 0.0
) -> Iterator[Row]:
    """The records that ``make`` puts there, met by a fresh daemon.

    ``crowded``: by so many users that an unknown name is not answered with 404: the total limits
    leave out records of users within theirs. ``listed_after``: the seconds of the first listing,
    whose CPU time is not counted.
    """
    with place() as directory:
        make(directory)
        with victim(directory) as one:
            late = Lateness(one)
            until = time.monotonic() + listed_after
            while time.monotonic() < until:
                late.step()
            yield from watched(one, late)
            if not crowded:
                yield Row("unknown run: 404 after (s)", until_404(one.url), 20)


def until_404(url: str) -> float:
    """How long a name that no record has goes on to be answered otherwise."""
    began = time.monotonic()
    while ask(url, "/status?run=nobodys").status != 404 and time.monotonic() < began + 30:
        time.sleep(0.1)
    return time.monotonic() - began


def blinding(count: int, bytes_: int, pause: float) -> Iterator[Row]:
    """Living records of another user whose journals grow without end."""
    with place() as directory:
        records(directory, 1, count)
        with growing(directory, bytes_, pause), victim(directory) as one:
            yield from watched(one)


def ended_ranks() -> Iterator[Row]:
    """No attack: 300 ended ranks with long journals, read by commands too."""
    with place() as directory:
        records(directory, 1, 300, journal=400_000)
        with victim(directory) as one:
            yield from watched(one)
            code, took, _ = command("status", HONEST, "--dir", str(directory))
            yield Row("warmwatch status --dir: exit code 5", code == 5, 0)
            yield Row("warmwatch status --dir (s)", took, 10)


def squatted_port() -> Iterator[Row]:
    """Another user listens where the daemon's default address is, and claims that all is warm."""
    claim = {"schema_version": 1, "summary": "gpt2: warm", "warm": True, "compiling": False}
    body = json.dumps({**claim, "runs": [], "gpus": [], "sources": []})
    with place() as directory, squatter(body) as listening:
        if not listening:
            yield Row("port 10464 is in use by another program", 1, 0)
            return
        code, _, printed = command("status", WARMWATCH_DIR=str(directory))
        yield Row("believes another user's daemon", "gpt2: warm" in printed, 0)
        yield Row("exit code 0", code == 0, 0)


@contextmanager
def squatter(body: str) -> Iterator[bool]:
    """A web server of another user at the default port."""
    program = f"""
import os, http.server, encodings.idna
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write({body!r}.encode())
    def log_message(self, *_): pass
os.setgid({MALLORY}); os.setuid({MALLORY})
try:
    server = http.server.HTTPServer(("127.0.0.1", 10464), Answer)
except OSError:
    print("busy", flush=True); raise SystemExit
print("listening", flush=True)
server.serve_forever()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline() == "listening\n"
        finally:
            process.kill()


_CONNECT = """
import encodings.idna, json, os, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
os.setgid({uid}); os.setuid({uid})
made = []
for request in json.loads(sys.argv[2]):
    made.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30))
    made[-1].sendall(request.encode("latin-1"))
print(len(made), flush=True)
sys.stdin.read()
"""


@contextmanager
def connections(url: str, requests: Sequence[bytes]) -> Iterator[None]:
    """Connections of another user that send these and never read."""
    said = json.dumps([one.decode("latin-1") for one in requests])
    with subprocess.Popen(
        [sys.executable, "-c", _CONNECT.format(uid=MALLORY), url.rpartition(":")[2], said],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == str(len(requests))
            yield
        finally:
            process.kill()


def first_line(url: str, request: bytes) -> tuple[bytes, float]:
    """The first line that this user gets, and after how long."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as made:
        made.sendall(request)
        return made.recv(64).partition(b"\r\n")[0], time.monotonic() - began


def silent_listeners() -> Iterator[Row]:
    """1,000 clients of ``/events`` that never read, then one of another user."""
    request = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with place() as directory, victim(directory) as one, connections(one.url, [request] * 1000):
        line, took = first_line(one.url, request)
        yield Row("another client is refused", b" 200 " not in line, 0)
        yield Row("another client's first line (s)", took, ANSWER_SECONDS)
        yield from watched(one)


_LEAVE = """
import encodings.idna, os, socket, sys
os.setgid({uid}); os.setuid({uid})
request = b"GET " + sys.argv[2].encode() + b" HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
for _ in range(1000):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30) as made:
        made.sendall(request)
print("done", flush=True)
"""


def clients_that_left() -> Iterator[Row]:
    """1,000 requests each of what takes longest, by clients that close without an answer."""
    others = ("/-/healthy", "/status", "/history?points=60")
    with place() as directory, victim(directory) as one:
        for path in ("/docs", "/history", "/openapi.json", f"/status?{'run=x&' * 3000}"):
            program = [sys.executable, "-c", _LEAVE.format(uid=MALLORY)]
            command = [*program, one.url.rpartition(":")[2], path]
            longest = 0.0
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
                while flood.poll() is None:
                    longest = max(longest, *(timed(one.url, other)[0] for other in others))
                assert flood.stdout is not None
                assert flood.stdout.read() == "done\n"
            longest = max(longest, *(timed(one.url, other)[0] for other in others))
            yield Row(f"{path[:16]}: others' longest (s)", longest, 1.0)
        yield Row("resident, peak (MB)", peak_mb(one.pid), RSS_MB)


_REQUEST = """
import encodings.idna, http.client, os, sys, threading, time
os.setgid({uid}); os.setuid({uid})
end = time.monotonic() + {seconds}
def go():
    while time.monotonic() < end:
        try:
            peer = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=20)
            while time.monotonic() < end:
                peer.request("GET", sys.argv[2], headers={{"Accept-Encoding": "gzip"}})
                peer.getresponse().read()
        except OSError:
            time.sleep(0.1)
for _ in range({clients}): threading.Thread(target=go, daemon=True).start()
time.sleep({seconds})
"""


def requests_without_a_pause(path: str) -> Iterator[Row]:
    """20 clients of one user that request one of the largest answers again and again."""
    program = _REQUEST.format(uid=MALLORY, seconds=WATCHED_SECONDS, clients=20)
    with place() as directory:
        records(directory, 1, 512)
        with victim(directory) as one:
            port = one.url.rpartition(":")[2]
            with subprocess.Popen([sys.executable, "-c", program, port, path]) as process:
                try:
                    for row in watched(one):
                        if "CPU" not in row.what:  # what is requested is sent
                            yield row
                finally:
                    process.kill()


def half_open_tls() -> Iterator[Row]:
    """2,000 unfinished handshakes, and one client with a request."""
    with place() as directory, tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        options = ("--dir", str(directory), *authority.options("daemon"))
        with daemon_process(*options, before=os.setpgrp) as (process, url):
            with connections(url, [b"\x16\x03\x01"] * 2000):
                began = time.monotonic()
                reply = ask(url, "/-/healthy", tls=authority.trusted())
                took = time.monotonic() - began
                yield Row("refused", reply.status != 200, 0)
                yield Row("answer (s)", took, ANSWER_SECONDS)
            yield Row("resident, peak (MB)", peak_mb(process.pid), RSS_MB)


def hung_directory() -> Iterator[Row]:
    """A file system that answers no call: timeouts hold."""
    with tempfile.TemporaryDirectory() as made, hung(Path(made)) as there:
        if not there:
            yield Row("no FUSE here", 1, 0)
            return
        for words, most in ((("wait", "--timeout", "3"), 5.0), (("status",), 10.0)):
            code, took, _ = command(*words, "--dir", made)
            yield Row(f"warmwatch {' '.join(words)} (s)", took, most)
            yield Row(f"warmwatch {words[0]}: exit code 0", code == 0, 0)
        took = command("doctor", WARMWATCH_DIR=made)[1]
        yield Row("warmwatch doctor (s)", took, 15)


def ten_users() -> Iterator[Row]:
    """102,400 records: more than the total limits, too."""
    return flood(lambda d: records(d, 10, 10_240), crowded=True, listed_after=12)


ATTACKS: dict[str, Callable[[], Iterator[Row]]] = {
    "one user, 10 times the limits": lambda: flood(lambda d: records(d, 1, 10_240)),
    "ten users, 10 times the limits": ten_users,
    "1,000 users": lambda: flood(lambda d: records(d, 1_000, 4), crowded=True),
    "100 growing journals": lambda: blinding(100, 70_000, 0.2),
    "1,000 growing journals": lambda: blinding(1_000, 70_000, 1.0),
    "300 ended ranks": ended_ranks,
    "100 long journals": lambda: flood(lambda d: records(d, 1, 100, journal=3_000_000)),
    "world size 1,000,000": lambda: flood(lambda d: records(d, 1, 10, world_size=1_000_000)),
    "200 forged GPUs each": lambda: flood(lambda d: records(d, 1, 1_000, gpus=200)),
    "100,000 empty folders": lambda: flood(lambda d: empty_folders(d, 100_000)),
    "squatted port": squatted_port,
    "silent listeners": silent_listeners,
    "/metrics without a pause": lambda: requests_without_a_pause("/metrics"),
    "half-open TLS": half_open_tls,
    "clients that left": clients_that_left,
    "hung directory": hung_directory,
}


def loopback_up() -> None:
    """A new network namespace has a loopback interface that is down."""
    up = struct.pack("16sh22x", b"lo", 1)  # IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, up)


def main() -> int:
    parser = argparse.ArgumentParser(prog="attacks", description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="*", help="part of a name; all attacks without")
    parser.add_argument("--own-network", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.name
    if os.geteuid() != 0:
        parser.error("it needs other users: run it as root")
    if given.own_network:
        loopback_up()
    elif possible("--net"):  # the default port may be in use here
        command = [sys.executable, "-m", "attacks", "--own-network", *names]
        os.execvp("unshare", ["unshare", "--net", *command])
    began, failed = time.monotonic(), 0
    for name, attack in ATTACKS.items():
        if names and not any(one in name for one in names):
            continue
        slow = slowdown()
        try:
            rows = list(attack())
            slow = max(slow, slowdown())  # the load of others changes
        except Exception as error:  # noqa: BLE001 - one attack that breaks it is a result
            rows = [Row(f"{type(error).__name__}: {error}", 1, 0)]
        for row in (one.on_machine(slow) for one in rows):
            failed += not row.holds
            mark = "" if row.holds else "  EXCEEDED"
            print(f"{name:32} {row.what:38} {row.seen:9.2f} {row.limit:9.2f}{mark}", flush=True)
    print(f"{failed} limits exceeded in {time.monotonic() - began:.0f} s")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
