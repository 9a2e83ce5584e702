# tests/api/test_remote_cache.py
"""A cache that machines share on a Redis server: what one process compiled another finds, with its folder empty."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from torchbolt import _C

HAS_CLIENT = bool(_C._redis_client())
needs_server = pytest.mark.skipif(
    shutil.which("redis-server") is None or not HAS_CLIENT, reason="redis-server is not installed, or hiredis was not"
)
KEY = "0123456789abcdef0123456789abcdef"

PROGRAM = """
import json, time, torch, torchbolt
f = torchbolt.compile(lambda x: torch.tanh(x * 3 + 1).exp().sum(-1))
x = torch.arange(12.0).reshape(3, 4) / 12
start = time.perf_counter()
for _ in range(2):
    torch.testing.assert_close(f(x), torch.tanh(x * 3 + 1).exp().sum(-1))
stats = torchbolt.stats()
print(json.dumps({"hits": stats["cache_hits"], "misses": stats["cache_misses"], "seconds": time.perf_counter() - start}))
"""


TWO_PROGRAMS = """
import os, sys, torch, torchbolt
x = torch.arange(12.0).reshape(3, 4) / 12
for f in (lambda x: torch.tanh(x * 3 + 1), lambda x: torch.exp(x * 3).sum(-1), lambda x: x.cos().amax(0)):
    compiled = torchbolt.compile(f)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), f(x))
    if sys.argv[1:]:
        os.kill(int(sys.argv.pop(1)), int(sys.argv.pop(1)))
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def server(tmp_path):
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path), "--requirepass", "open"]
    with subprocess.Popen([*command, "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL) as process:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"redis://:open@127.0.0.1:{port}/2"
        process.terminate()


def run(url, folder, cwd=None, **environment):
    """What a process of its own says, and its warnings."""
    given = {"TORCHBOLT_CACHE_DIR": str(folder), "TORCHBOLT_REMOTE_CACHE": url, "TORCHBOLT_CACHE_KEY": KEY}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | given | environment,
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
    )
    return json.loads(done.stdout), [line for line in done.stderr.splitlines() if "torchbolt:" in line]


def redis(url, *command):
    """The answer to one command, as it is sent."""
    with socket.create_connection(("127.0.0.1", int(url.split(":")[-1].split("/")[0])), 5) as s:
        for words in (("AUTH", "open"), ("SELECT", "2"), command):
            s.sendall(b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words)]))
            time.sleep(0.1)
            answer = s.recv(1 << 20)
        return answer.decode("latin1")


@needs_server
def test_another_machine_finds_what_one_compiled(server, tmp_path):
    first, warnings = run(server, tmp_path / "one")
    assert (first["hits"], warnings) == (0, []) and first["misses"] > 0
    second, warnings = run(server, tmp_path / "two")
    assert (second["misses"], warnings) == (0, []) and second["hits"] > 0
    third, _ = run("", tmp_path / "two")  # it is in the folder now
    assert third["misses"] == 0


@needs_server
def test_entries_do_not_depend_on_rank_user_or_path(server, tmp_path):
    run(server, tmp_path / "one", RANK="0", LOCAL_RANK="0", USER="somebody", HOME=str(tmp_path / "home"))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    told, warnings = run(server, tmp_path / "two", cwd=elsewhere, RANK="7", LOCAL_RANK="3", WORLD_SIZE="8",
                         USER="another", HOME=str(elsewhere))  # fmt: skip
    assert (told["misses"], warnings) == (0, [])


@needs_server
def test_what_was_changed_or_signed_by_others_is_compiled_anew(server, tmp_path):
    run(server, tmp_path / "one")
    keys = [word for word in redis(server, "KEYS", "torchbolt:*").split("\r\n") if word.startswith("torchbolt:")]
    assert keys
    told, warnings = run(server, tmp_path / "two", TORCHBOLT_CACHE_KEY="another secret, long enough")
    assert told["misses"] > 0 and len(warnings) == 1 and "signature does not hold" in warnings[0]
    for key in keys:
        redis(server, "SET", key, "BOLTREM1 and bytes of somebody's")
    told, warnings = run(server, tmp_path / "three")
    assert told["misses"] > 0 and len(warnings) == 1 and "signature does not hold" in warnings[0]
    told, warnings = run(server, tmp_path / "four")  # written again
    assert (told["misses"], warnings) == (0, [])


@needs_server
def test_a_wrong_password_is_a_warning(server, tmp_path):
    told, warnings = run(server.replace("open", "shut"), tmp_path / "one")
    assert told["misses"] > 0 and len(warnings) == 1 and "shut" not in warnings[0]


@needs_server
@pytest.mark.parametrize("signal_", [signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "is killed"])
def test_a_server_that_stops_is_a_warning(server, tmp_path, signal_):
    """In the middle of a process, between two programs that it compiles."""
    pid = next(int(line.split(":")[1]) for line in redis(server, "INFO", "server").split() if "process_id:" in line)
    given = {"TORCHBOLT_CACHE_DIR": str(tmp_path / "one"), "TORCHBOLT_REMOTE_CACHE": server, "TORCHBOLT_CACHE_KEY": KEY}
    try:
        done = subprocess.run(
            [sys.executable, "-c", TWO_PROGRAMS, str(pid), str(int(signal_))],
            env=os.environ | given,
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    warnings = [line for line in done.stderr.splitlines() if "torchbolt:" in line]
    assert len(warnings) == 1 and "is not used any longer in this process" in warnings[0], done.stderr


@needs_server
def test_something_else_under_its_name_is_a_warning(server, tmp_path):
    run(server, tmp_path / "one")
    for key in [word for word in redis(server, "KEYS", "torchbolt:*").split("\r\n") if word.startswith("torchbolt:")]:
        redis(server, "DEL", key)
        redis(server, "RPUSH", key, "a list")
    told, warnings = run(server, tmp_path / "two")
    assert told["misses"] > 0 and len(warnings) == 1 and "WRONGTYPE" in warnings[0]


def test_a_dead_server_is_a_warning(tmp_path):
    told, warnings = run(f"redis://127.0.0.1:{free_port()}", tmp_path / "one")
    why = "Connection refused" if HAS_CLIENT else "has no client for Redis"
    assert told["misses"] > 0 and len(warnings) == 1 and why in warnings[0]


@pytest.mark.parametrize(
    ("url", "key", "why"),
    [
        ("redis://127.0.0.1:1", "", "TORCHBOLT_CACHE_KEY is not set"),
        ("redis://127.0.0.1:1", "short", "shorter than 16 characters"),
        ("https://127.0.0.1", KEY, "only redis://"),
    ],
)
def test_what_cannot_be_used_is_said_once(tmp_path, url, key, why):
    told, warnings = run(url, tmp_path / "one", TORCHBOLT_CACHE_KEY=key)
    assert told["misses"] > 0 and len(warnings) == 1 and why in warnings[0]
