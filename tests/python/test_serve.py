"""`vramline serve`: a server that answers one page to one machine, whatever is sent to it; closer looks; a run that goes on."""

import base64
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

TRACE = "tf221_cpu_cnn_from_start.xplane.pb"
RECORDING = "tf221_cpu_keras.vram"


class Served:
    """A server of the real binary, and plain requests to it."""

    def __init__(self, binary, path, *arguments):
        command = [binary, "serve", path, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([0-9a-f]{32})/", self.url)
        assert found, self.url + self.process.stderr.read()
        self.port, self.token = int(found[1]), found[2]

    def get(self, name="", method="GET", host=None, path=None, timeout=30):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Host": host if host is not None else f"127.0.0.1:{self.port}"}
        connection.putrequest(method, path or f"/{self.token}/{name}", skip_host=True, skip_accept_encoding=True)
        for key, value in headers.items():
            connection.putheader(key, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    def json(self, name):
        answer, body = self.get(name)
        assert answer.status == 200, body
        return json.loads(body)

    def raw(self, sent, half_close=False, timeout=15):
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(sent)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            told = b""
            while piece := connection.recv(65536):
                told += piece
            return told

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.fixture
def serve(binary):
    """A function: a server of a path, which ends with the test."""
    servers = []

    def start(path, *arguments):
        servers.append(Served(binary, path, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.end()


def test_page_and_its_data(serve, vramline, fixtures):
    server = serve(fixtures / RECORDING)
    answer, body = server.get()
    assert answer.status == 200 and answer.getheader("Content-Type") == "text/html; charset=utf-8"
    assert b"data-version" in body and b"Vramline" in body
    for name, value in {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Resource-Policy": "same-origin",
    }.items():
        assert answer.getheader(name) == value
    policy = answer.getheader("Content-Security-Policy")
    assert "default-src 'none'" in policy and "unsafe" not in policy and "connect-src 'self'" in policy
    assert "Access-Control-Allow-Origin" not in answer.headers
    data = server.json("data")
    truth = vramline(fixtures / RECORDING)
    assert data["data"]["report"]["pools"][0]["peak_bytes"] == truth["pools"][0]["peak_bytes"]
    assert data["standing"] == "whole"
    head, nothing = server.get(method="HEAD")
    assert head.status == 200 and nothing == b"" and int(head.getheader("Content-Length")) == len(body)


def test_nothing_else_is_served(serve, fixtures):
    server = serve(fixtures / RECORDING)
    token = server.token
    wrong = ("0" if token[0] != "0" else "1") + token[1:]
    paths = [
        "/", "/favicon.ico", f"/{token}", f"/{token}//", f"/{token}/run.json", f"/{token}/../{token}/", f"/{token}/..", f"/{token}/../../etc/passwd",
        f"/{token}/%2e%2e/", f"/%2e%2e/{token}/", f"/{token}/%00", f"/{token}/data%00", f"/{token}/Data", f"/{token}/data/", "//etc/passwd",
        "/etc/passwd", f"/{wrong}/", f"/{token[:-1]}/", f"/{token}0/", f"/{token.upper()}x/", f"/{token}/tile.json", f"/x/{token}/",
    ]  # fmt: skip
    for path in paths:
        answer, body = server.get(path=path)
        assert answer.status == 404, path
        assert len(body) < 200 and b"passwd" not in body
    assert server.get(path=f"/{token}/?x=1")[0].status == 200
    for query in ("tile", "tile?pool=0", "tile?pool=-1&from=0&to=1&width=1", "tile?pool=0&from=a&to=1&width=1", "tile?pool=0&from=0&to=9e9&width=1",
                  "held?pool=0&at=1", "tile?pool=99999999999999999999&from=0&to=1&width=1"):  # fmt: skip
        assert server.get(query)[0].status == 400, query
    for query in ("tile?pool=7&from=0&to=1&width=1", "held?pool=0&at=5&bytes=17", "held?pool=7&at=5&bytes=17"):
        assert server.get(query)[0].status == 404, query
    ends = f"from={-(2**63)}&to={2**63 - 1}&width={2**63 - 1}"
    assert server.get(f"tile?pool=0&{ends}")[0].status == 200
    assert server.get("tile?pool=0&from=5&to=-5&width=0")[0].status == 200


def test_other_names_are_refused(serve, fixtures):
    """A page of somebody else's may let its name point at this machine; its requests then carry that name."""
    server = serve(fixtures / RECORDING)
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", f"127.0.0.1:{server.port + 1}", "", f"127.0.0.1.evil.example:{server.port}",
                 f"localhost:{server.port}.evil.example"):  # fmt: skip
        answer, body = server.get(host=host)
        assert answer.status == 421 and b"pools" not in body, host
    for host in (f"localhost:{server.port}", f"LOCALHOST:{server.port}", f"[::1]:{server.port}"):
        assert server.get(host=host)[0].status == 200
    without = server.raw(f"GET /{server.token}/ HTTP/1.1\r\n\r\n".encode())
    assert without.startswith(b"HTTP/1.1 421")
    # It listens at this one address.
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", server.port), timeout=5)


def test_other_methods_and_garbage(serve, fixtures):
    server = serve(fixtures / RECORDING)
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT"):
        answer, _ = server.get(method=method)
        assert answer.status == 405 and answer.getheader("Allow") == "GET, HEAD"
    path, host = f"/{server.token}/", f"Host: 127.0.0.1:{server.port}\r\n"
    cases = {
        b"\x00" * 64 + b"\r\n": b"400",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n": b"400",
        b"GET\r\n\r\n": b"400",
        f"GET {path}\x00 HTTP/1.1\r\n{host}\r\n".encode(): b"400",
        f"GET {path} HTTP/9.9\r\n{host}\r\n".encode(): b"400",
        f"GET {path} HTTP/1.1\n{host}\n".encode(): b"400",
        f"GET {path} HTTP/1.1\r\n{host}no colon\r\n\r\n".encode(): b"400",
        f"GET {path} HTTP/1.1\r\n{host}{host}\r\n".encode(): b"400",
        f"GET http://127.0.0.1{path} HTTP/1.1\r\n{host}\r\n".encode(): b"400",
        f"GET {path} HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\nhello".encode(): b"413",
        f"GET {path} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode(): b"413",
        f"GET /{'a' * 100_000} HTTP/1.1\r\n{host}\r\n".encode(): b"414",
        f"GET {path} HTTP/1.1\r\n{host}X: {'a' * 100_000}\r\n\r\n".encode(): b"431",
    }
    for sent, status in cases.items():
        told = server.raw(sent)
        assert told.startswith(b"HTTP/1.1 " + status), (sent[:60], told[:60])
    # A client that has said all and closed its half still gets its answer; one that has said half gets none of the page.
    whole = server.raw(f"GET {path} HTTP/1.1\r\n{host}\r\n".encode(), half_close=True)
    assert whole.startswith(b"HTTP/1.1 200") and whole.endswith(b"</html>\n")
    assert server.raw(b"GET /", half_close=True).startswith(b"HTTP/1.1 400")
    assert server.raw(b"", half_close=True) == b""
    assert server.get()[0].status == 200


def test_many_at_once_and_some_that_hang(serve, fixtures):
    server = serve(fixtures / RECORDING)
    length = len(server.get()[1])
    hanging = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    for at, connection in enumerate(hanging):
        connection.sendall(b"" if at % 2 else b"GET /")
    try:
        with ThreadPoolExecutor(200) as pool:
            answers = list(pool.map(lambda _: server.get(timeout=60), range(200)))
        assert [answer.status for answer, _ in answers] == [200] * 200
        assert {len(body) for _, body in answers} == {length}
        # Whoever does not ask in time is let go.
        hanging[0].settimeout(20)
        assert hanging[0].recv(100).startswith(b"HTTP/1.1 408")
    finally:
        for connection in hanging:
            connection.close()


def test_pages_that_listen_are_counted(serve, fixtures):
    server = serve(fixtures / RECORDING)
    listening = []
    sent = f"GET /{server.token}/events HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode()
    try:
        for _ in range(32):
            listening.append(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            listening[-1].sendall(sent)
            assert b"event: state" in read_until(listening[-1], b"\n\n")
        assert server.raw(sent).startswith(b"HTTP/1.1 503")
        assert server.get()[0].status == 200
        listening.pop().close()
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as again:
                again.sendall(sent)
                if again.recv(12) == b"HTTP/1.1 200":
                    break
            time.sleep(0.1)
        else:
            pytest.fail("the place of a page that was closed is not free again")
    finally:
        for connection in listening:
            connection.close()


def read_until(connection, end, count=1):
    told = b""
    while told.count(end) < count and (piece := connection.recv(65536)):
        told += piece
    return told


def test_ends_when_told(serve, fixtures):
    for number in (signal.SIGINT, signal.SIGTERM):
        server = serve(fixtures / RECORDING)
        server.process.send_signal(number)
        code, out, err = server.end()
        assert code == 0 and "Stopped serving" in out and err == ""


def test_refusals_say_what_to_do(serve, binary, fixtures, tmp_path):
    server = serve(fixtures / RECORDING)
    run = lambda *arguments: subprocess.run([binary, "serve", *arguments], capture_output=True, text=True, check=False, timeout=60)  # noqa: E731
    taken = run(fixtures / RECORDING, "--port", str(server.port))
    assert taken.returncode == 1 and f"uses port {server.port} of 127.0.0.1" in taken.stderr and "hint: leave out --port" in taken.stderr
    missing = run(tmp_path / "none.vram")
    assert missing.returncode == 1 and "none.vram" in missing.stderr and "http" not in missing.stdout
    nowhere = run(fixtures / RECORDING, "--host", "192.0.2.1")
    assert nowhere.returncode == 1 and "hint:" in nowhere.stderr
    assert run(fixtures / RECORDING, "--host", "not-an-address").returncode == 2


def test_a_host_that_others_reach_is_warned_of(binary, fixtures):
    process = subprocess.Popen([binary, "serve", fixtures / RECORDING, "--host", "0.0.0.0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    url = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert url.startswith("http://") and "can be reached from other machines" in err and "ssh -L" in err


def test_deleted_meanwhile(serve, fixtures, tmp_path):
    recording = tmp_path / "gone.vram"
    shutil.copytree(fixtures / RECORDING, recording)
    server = serve(recording)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as page:
        page.sendall(f"GET /{server.token}/events HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
        assert b'"standing":"whole"' in read_until(page, b"\n\n")
        shutil.rmtree(recording)
        assert b'"standing":"gone"' in read_until(page, b"\n\n")
    for name in ("", "data", "tile?pool=0&from=0&to=1000&width=10", "events"):
        answer, body = server.get(name)
        assert answer.status == 410 and b"deleted" in body
    # Somebody puts it back.
    shutil.copytree(fixtures / RECORDING, recording)
    until = time.monotonic() + 30
    while server.get()[0].status != 200:
        assert time.monotonic() < until
        time.sleep(0.2)


def unpacked(text, columns, count):
    """Columns of differences, as web/src/data.ts reads them."""
    raw, at, out = base64.b64decode(text), 0, []
    for _ in range(columns):
        value, column = 0, []
        for _ in range(count):
            left, shift = 0, 0
            while True:
                byte = raw[at]
                at += 1
                left |= (byte & 0x7F) << shift
                shift += 7
                if not byte & 0x80:
                    break
            value += (left >> 1) ^ -(left & 1)
            column.append(value)
        out.append(column)
    assert at == len(raw)
    return out


@pytest.fixture(scope="module")
def lives(binary, fixtures, tmp_path_factory):
    """Every allocation of the trace, as export tells them."""
    file = tmp_path_factory.mktemp("export") / "lives.json"
    subprocess.run([binary, "export", fixtures / TRACE, "--to", "json", "-o", file], check=True, capture_output=True)
    return json.loads(file.read_text())["allocations"]


def test_tiles_are_exact(serve, vramline, fixtures, lives):
    """The parts of a tile against every allocation as `export` tells it, and against `report --at`."""
    server = serve(fixtures / TRACE)
    peak_at = vramline(fixtures / TRACE)["pools"][0]["peak_at_ns"]
    for before, after in ((2_000_000, 2_000_000), (40_000_000, 1_000_000), (10**12, 10**12)):
        begin, end = peak_at - before, peak_at + after
        tile = server.json(f"tile?pool=0&from={begin}&to={end}&width=800")
        count = tile["columns"]
        time_ns, since, least, last, *parts = unpacked(tile["data"], 14, count)
        total = [sum(values) for values in zip(*parts, strict=True)]
        assert count > 0 and time_ns == sorted(time_ns)
        assert max(total) == vramline(fixtures / TRACE)["pools"][0]["peak_bytes"]
        if tile["is_exact"]:
            # Each event once: what is highest, least and last of it is the same, and its own.
            assert since == [0] * count and least == last == total
            events = sorted(t for row in lives for t in (row["born_ns"], row["freed_ns"]) if t is not None and begin <= t <= end)
            assert time_ns[-len(events) :] == events and count - len(events) in (0, 1)
        # The blocks of the window are those that export has there, to the byte.
        inside = [row for row in lives if row["born_ns"] <= end and (row["freed_ns"] is None or row["freed_ns"] >= begin)]
        drawn = tile["map"]
        assert drawn["blocks"] + drawn["left_out"] == len(inside)
        address, chunk, _, born, life, *_ = unpacked(drawn["data"], 8, drawn["blocks"])
        base = int(drawn["base"], 16)
        found = sorted((base + a, c, b, None if n == 0 else b + n - 1) for a, c, b, n in zip(address, chunk, born, life, strict=True))
        truth = sorted((int(row["address"]), row["chunk_bytes"], row["born_ns"], row["freed_ns"]) for row in inside)
        assert [one[:3] for one in found] == [one[:3] for one in truth]
        assert [one[3] for one in found] == [one[3] for one in truth]
    # A moment: the same rows as the report of that moment.
    at = time_ns[count // 2]
    of_then = [place for place, t in enumerate(time_ns) if t == at]
    told = server.json(f"held?pool=0&at={at}&bytes={total[of_then[-1]]}")["moment"]
    report = vramline(fixtures / TRACE, "--at", str(at))["pools"][0]["at"]
    assert told["in_use_bytes"] == report["in_use_bytes"]
    assert sorted(row[0] for row in told["rows"]) == sorted(row["bytes"] for row in report["rows"])
    assert sum(row[0] for row in told["rows"]) + told["rest_bytes"] + told["slack_bytes"] + told["before_recording_bytes"] == told["in_use_bytes"]


TRAINING = """
import sys, time
import numpy as np
import keras
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
model.compile(optimizer="adam", loss="mse")
x, y = np.zeros((512, 64), "float32"), np.zeros((512, 10), "float32")
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)
model.fit(x, y, batch_size=32, epochs=int(sys.argv[1]), verbose=0, callbacks=[Slow()])
"""


@pytest.fixture
def training(binary, tmp_path):
    """A real training under `vramline run` that goes on for some seconds."""
    pytest.importorskip("tensorflow")
    script, recording = tmp_path / "train.py", tmp_path / "live.vram"
    script.write_text(TRAINING)
    command = [binary, "run", "-o", recording, "--no-report", "--", sys.executable, script, "16"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    until = time.monotonic() + 120
    while not list(recording.glob("marks-*.arrows")) and time.monotonic() < until:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    yield recording, process
    if process.poll() is None:
        process.terminate()
    process.communicate(timeout=60)


def applied(old, patch):
    if "v" in patch:
        return patch["v"]
    if "o" in patch:
        return {**old, **{key: applied(old.get(key), inner) for key, inner in patch["o"].items()}}
    out = old[: patch["n"]]
    for at, inner in patch["e"].items():
        out[int(at)] = applied(out[int(at)], inner)
    return out + patch["a"]


def test_a_run_that_goes_on(serve, vramline, training):
    """Events tell what is new; old data and patches make the new data; at the end it is the report's."""
    recording, process = training
    server = serve(recording)
    have = server.json("data")
    assert have["standing"] == "going"
    document, version, grown, standing, told = {"verdict": have["verdict"], "data": have["data"]}, have["version"], 0, "going", b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as page:
        page.sendall(f"GET /{server.token}/events HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
        while standing == "going":
            piece = page.recv(65536)
            assert piece, "the server ended the connection"
            told += piece
            *events, told = told.split(b"\n\n")
            for event in events:
                if b"event: " not in event:
                    continue
                kind, news = re.search(rb"event: (\w+)\ndata: (.*)", event, re.DOTALL).groups()
                news = json.loads(news)
                standing = news["standing"]
                if kind == b"grown" and news["from"] == version:
                    document, version, grown = applied(document, news["patch"]), news["version"], grown + 1
    assert standing == "ended" and grown >= 2
    process.wait(timeout=120)
    last = server.json("data")
    assert last["standing"] == "ended"
    if last["version"] == version:
        assert document == {"verdict": last["verdict"], "data": last["data"]}
    truth = vramline(recording)
    assert len(last["data"]["report"]["steps"]) == len(truth["steps"]) == 16 * 16
    assert last["data"]["report"]["pools"][0]["peak_bytes"] == truth["pools"][0]["peak_bytes"]


def test_deleted_while_it_runs(serve, training):
    recording, process = training
    server = serve(recording)
    assert server.get()[0].status == 200
    moved = recording.with_name("moved.vram")
    os.rename(recording, moved)
    assert server.get()[0].status == 410
    process.wait(timeout=120)
    assert server.process.poll() is None


# In a browser.


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make test installs it")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        except sync_api.Error as error:
            pytest.skip(f"no browser can be started (apt-get install chromium, or playwright install chromium): {error}")
        yield browser
        browser.close()


@pytest.fixture
def look(browser):
    """A function: a page of a server, which may ask that server and nobody else, and complains of nothing."""
    complaints, contexts = [], []

    def opened(server):
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce"))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if not request.url.startswith(server.url) else None)
        page.goto(server.url)
        page.wait_for_selector("#notes")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [one for one in complaints if "ERR_" not in one and "410" not in one] == []


def test_a_page_follows_a_run(serve, look, vramline, training):
    """More steps appear; the window, the chosen moment, what was typed and opened stay; at the end it is the report."""
    recording, process = training
    server = serve(recording)
    page = look(server)
    page.wait_for_function("() => window.vramline && document.querySelector('#live').dataset.standing === 'going'", timeout=60_000)
    page.wait_for_function("() => Number(document.querySelector('#steps summary')?.textContent.match(/\\d+/)) >= 10", timeout=60_000)
    count = "() => Number(document.querySelector('#steps summary').textContent.match(/\\d+/))"
    before = page.evaluate(count)
    page.locator("#steps summary").click()
    page.locator("#steps input").fill("train")
    page.locator("#timeline canvas").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("+")
    page.wait_for_function("() => !vramline.clock.isMoving")
    window = page.evaluate("() => [vramline.clock.from, vramline.clock.to, vramline.picture.high[vramline.clock.chosen]]")
    page.wait_for_function(f"before => ({count})() > before + 10", arg=before, timeout=60_000)
    after = page.evaluate("() => [vramline.clock.from, vramline.clock.to, vramline.picture.high[vramline.clock.chosen]]")
    if page.evaluate("() => vramline.picture.by") == "counters":
        # The trace has another origin of its clock: the window is the same until it comes.
        assert after[0] == window[0] and after[2] == window[2]
    assert page.locator("#steps details[open]").count() == 1
    assert page.locator("#steps input").input_value() == "train"
    page.wait_for_function("() => document.querySelector('#live').dataset.standing === 'ended'", timeout=120_000)
    process.wait(timeout=60)
    truth = vramline(recording)
    page.wait_for_function(f"all => ({count})() === all", arg=len(truth["steps"]), timeout=30_000)
    assert int(page.locator("#peak data").get_attribute("value")) == truth["pools"][0]["peak_bytes"]
    assert "has ended" in page.locator("#live").inner_text()
    assert page.locator("#verdict p").first.inner_text()


def test_a_page_of_what_is_deleted_says_so(serve, look, fixtures, tmp_path):
    recording = tmp_path / "gone.vram"
    shutil.copytree(fixtures / RECORDING, recording)
    server = serve(recording)
    page = look(server)
    shutil.rmtree(recording)
    page.wait_for_function("() => document.querySelector('#live').dataset.standing === 'gone'", timeout=30_000)
    assert "deleted or moved" in page.locator("#live").inner_text()
    assert page.locator("#timeline canvas").count() == 1
    server.end()
    assert page.locator("#peak data").count() == 1


def test_a_page_says_that_the_server_has_ended(serve, look, fixtures):
    server = serve(fixtures / RECORDING)
    page = look(server)
    page.wait_for_function("() => document.querySelector('#live').dataset.standing === 'whole'")
    server.end()
    page.wait_for_function("() => document.querySelector('#live').dataset.standing === 'lost'", timeout=30_000)


def test_a_page_gets_every_event_where_one_zooms_in(serve, look, fixtures, tmp_path):
    """A trace with more events than a page keeps: the window is told event by event, its blocks are all there, and any moment has its rows."""
    sys.path.insert(0, str(fixtures.parent / "benches"))
    try:
        from page import repeated
    finally:
        sys.path.pop(0)
    trace = tmp_path / "long.xplane.pb"
    repeated(fixtures / TRACE, trace, 5, 30_000_000_000)
    server = serve(trace)
    page = look(server)
    each, whole = page.evaluate("() => [vramline.picture.each, vramline.picture.total[vramline.clock.chosen]]")
    assert each > 1
    page.evaluate("() => { const { clock, picture } = vramline, at = picture.high[clock.chosen]; clock.set(at - 3e6, at + 3e6); }")
    page.wait_for_function("() => vramline.picture.near", timeout=30_000)
    near = page.evaluate("() => { const { from, to, isExact, blocks } = vramline.picture.near; return [from, to, isExact, blocks.count, blocks.leftOut]; }")
    told = server.json(f"tile?pool=0&from={int(near[0])}&to={int(near[1])}&width=100")
    assert near[2] and near[3] == told["map"]["blocks"] and near[4] == 0
    times = unpacked(told["data"], 14, told["columns"])[0]
    drawn = page.evaluate("([from, to]) => [...vramline.picture.time].filter(at => at >= from && at <= to)", near[:2])
    assert drawn == [at for at in times if near[0] <= at <= near[1]]
    assert page.evaluate("() => vramline.picture.time.every((at, i, all) => i === 0 || all[i - 1] <= at)")
    # The chosen moment is still the peak, and the one beside it has its own rows.
    assert page.evaluate("() => vramline.picture.total[vramline.clock.chosen]") == whole
    page.locator("#timeline canvas").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => !document.querySelector('#timeline .held .note')", timeout=30_000)
    total = page.evaluate("() => vramline.picture.total[vramline.clock.chosen]")
    assert int(page.locator("#timeline .held tfoot .total data").first.get_attribute("value")) == total
