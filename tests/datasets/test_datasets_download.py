"""Servers on this machine that answer well, wrongly, slowly, or not at all. Nothing leaves the machine."""

import gzip
import hashlib
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from torchvision.datasets import MNIST

from epochbench.datasets import DataError, DataOptions, digits
from epochbench.datasets.download import fetch

pytestmark = pytest.mark.filterwarnings("error")

CONTENT = bytes(range(256)) * 40
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def straight_to_this_machine(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def serve():
    """serve(answer) → the address; ``answer`` takes the handler. The paths that were asked for are in serve.asked."""
    servers = []

    def start(answer):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                start.asked.append(self.path)
                answer(self)

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/"

    start.asked = []
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def send(handler, content, *, promised=None, status=200):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content) if promised is None else promised))
    handler.end_headers()
    handler.wfile.write(content)


def refused(url, path, **options):
    with pytest.raises(DataError) as caught:
        fetch(url, path, **options)
    assert "\n" not in str(caught.value)
    assert list(path.parent.iterdir()) == []  # neither the file nor a temporary one
    return str(caught.value)


def test_a_file_arrives_whole(serve, tmp_path):
    url = serve(lambda handler: send(handler, CONTENT))
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    path = fetch(url + "a.gz", tmp_path / "new" / "a.gz", md5=MD5, sha256_prefix=sha256[:8])
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["a.gz"]


def test_a_whole_file_already_there_is_not_asked_for(serve, tmp_path):
    url = serve(lambda handler: send(handler, CONTENT))
    (tmp_path / "a.gz").write_bytes(CONTENT)
    fetch(url + "a.gz", tmp_path / "a.gz", md5=MD5)
    assert serve.asked == []


@pytest.mark.parametrize("md5", [MD5, None], ids=["known hash", "no hash"])
def test_a_part_of_a_file_already_there_does_not_count(serve, tmp_path, md5):
    url = serve(lambda handler: send(handler, CONTENT))
    (tmp_path / "a.gz").write_bytes(CONTENT[:200])
    assert fetch(url + "a.gz", tmp_path / "a.gz", md5=md5).read_bytes() == CONTENT


def test_a_wrong_hash_is_tried_once_more_and_then_named(serve, tmp_path):
    url = serve(lambda handler: send(handler, b"<html>blocked</html>"))
    message = refused(url + "a.gz", tmp_path / "a.gz", md5=MD5)
    assert "a.gz" in message
    assert MD5 in message
    assert serve.asked == ["/a.gz", "/a.gz"]


def test_a_wrong_sha256_is_named(serve, tmp_path):
    url = serve(lambda handler: send(handler, CONTENT))
    assert "sha256" in refused(url + "a.pth", tmp_path / "a.pth", sha256_prefix="00000000")


def test_a_good_second_answer_is_taken(serve, tmp_path):
    answers = [b"cut", CONTENT]
    url = serve(lambda handler: send(handler, answers.pop(0)))
    assert fetch(url + "a.gz", tmp_path / "a.gz", md5=MD5).read_bytes() == CONTENT


def test_a_transfer_that_ends_early_is_tried_once_more_and_then_told(serve, tmp_path):
    url = serve(lambda handler: send(handler, CONTENT[:100], promised=len(CONTENT)))
    message = refused(url + "a.gz", tmp_path / "a.gz")
    assert "ended after 100 of 10240 bytes" in message
    assert serve.asked == ["/a.gz", "/a.gz"]


def test_a_server_that_refuses_is_told_with_its_code(serve, tmp_path):
    url = serve(lambda handler: send(handler, b"no", status=403))
    assert "403 Forbidden" in refused(url + "a.gz", tmp_path / "a.gz", md5=MD5)


@pytest.mark.timeout(60)
def test_a_server_that_never_answers_ends_the_wait(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.gz"
        message = refused(url, tmp_path / "a.gz", md5=MD5, timeout_seconds=0.3)
    assert "no answer within 0.3 s" in message


@pytest.mark.timeout(60)
@pytest.mark.parametrize("drip", [b"x", b"X-Header: and so on\r\n"], ids=["body", "headers"])
def test_a_server_that_answers_drop_by_drop_ends_the_wait(serve, tmp_path, drip):
    over = threading.Event()

    def answer(handler):
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n" + (b"\r\n" if drip == b"x" else b""))
        try:
            while not over.wait(0.05):
                handler.wfile.write(drip)
        except OSError:
            pass

    url = serve(answer)
    try:
        assert "no answer" in refused(url + "a.gz", tmp_path / "a.gz", timeout_seconds=0.3)
    finally:
        over.set()


def test_a_closed_port_is_told(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "cannot be reached" in refused(f"http://127.0.0.1:{port}/a.gz", tmp_path / "a.gz")


def test_an_address_of_another_kind_is_refused(tmp_path):
    assert "http" in refused("file:///etc/hostname", tmp_path / "a.gz")


@pytest.fixture
def small_mnist(serve, monkeypatch, tmp_path):
    """torchvision's table of MNIST made to point at this machine, at files of two images."""
    contents = {}
    for part in ("train", "t10k"):
        images = struct.pack(">IIII", 0x803, 2, 28, 28) + bytes(2 * 784)
        contents[f"/{part}-images-idx3-ubyte.gz"] = gzip.compress(images)
        contents[f"/{part}-labels-idx1-ubyte.gz"] = gzip.compress(struct.pack(">II", 0x801, 2) + b"\x07\x02")
    good = serve(lambda handler: send(handler, contents[handler.path]))
    bad = serve(lambda handler: send(handler, b"gone", status=404))
    serve.asked.clear()
    resources = [(name[1:], hashlib.md5(content).hexdigest()) for name, content in contents.items()]
    monkeypatch.setattr(MNIST, "resources", resources)
    monkeypatch.setattr(MNIST, "mirrors", [bad, good])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return bad


def test_mnist_comes_from_the_mirror_that_has_it_and_only_once(serve, small_mnist):
    data = digits(DataOptions(download=True), train=True)
    assert data.facts.name == "MNIST"
    assert data.targets.tolist() == [7, 2]
    assert len(serve.asked) == 8  # four files, of the bad mirror and of the good one
    assert len(digits(DataOptions(download=True), train=False)) == 2
    assert len(serve.asked) == 8


def test_without_a_mirror_that_has_it_the_message_says_what_to_do(serve, small_mnist, monkeypatch):
    monkeypatch.setattr(MNIST, "mirrors", [small_mnist])
    with pytest.raises(DataError, match=r"404.*leave the download out, or give a folder") as caught:
        digits(DataOptions(download=True), train=True)
    assert "\n" not in str(caught.value)


def test_a_file_cut_in_the_cache_is_fetched_again(serve, small_mnist, tmp_path):
    digits(DataOptions(download=True), train=True)
    (kept,) = tmp_path.glob("**/train-images-idx3-ubyte.gz")
    kept.write_bytes(kept.read_bytes()[:20])
    assert len(digits(DataOptions(download=True), train=True)) == 2


def test_mnist_in_the_users_folder_goes_before_a_download(serve, small_mnist, tmp_path):
    digits(DataOptions(download=True), train=True)
    serve.asked.clear()
    (kept,) = tmp_path.glob("**/mnist")
    mine = kept.rename(tmp_path / "mine")  # the cache has it no more
    assert digits(DataOptions(folder=mine, download=True), train=True).facts.name == "MNIST"
    assert serve.asked == []
