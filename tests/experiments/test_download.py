"""Fetching files: resumed, checked, tried from several places, never overwritten."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from pcbf_experiments.data import download
from pcbf_experiments.data.download import DatasetError, Source, check_file, fetch, receipt_path

NAME = "toy-play-v0.npz"


class Server(ThreadingHTTPServer):
    """Serves `files`; breaks off after `limit` bytes of a body; notes the Range header of each request."""

    daemon_threads = True
    files: dict[str, bytes]
    limit: int | None = None
    understands_ranges = True
    asked: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self):
        body = self.server.files.get(self.path.lstrip("/"))
        if body is None:
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.understands_ranges else 0
        if begin >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - begin))
        self.end_headers()
        self.wfile.write(body[begin:][: self.server.limit])
        self.close_connection = True

    def log_message(self, format, *args):
        pass


@pytest.fixture
def payload(tmp_path: Path) -> bytes:
    file = tmp_path / "payload.npz"
    np.savez(file, observations=np.arange(6000, dtype=np.float32).reshape(1000, 6), terminals=np.zeros(1000, bool))
    return file.read_bytes()


@pytest.fixture
def server(payload: bytes) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.files, server.asked = {NAME: payload}, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def place(server: Server, kind: str = "mirror") -> Source:
    return Source(f"http://127.0.0.1:{server.server_address[1]}", kind)


def test_file_is_fetched_with_a_receipt(server, payload, tmp_path):
    file = tmp_path / "data" / NAME
    receipt = fetch(file, [place(server)], progress=False)
    assert file.read_bytes() == payload
    assert receipt["source"] == "mirror" and receipt["bytes"] == len(payload)
    assert receipt["arrays"]["observations"] == {"shape": [1000, 6], "dtype": "float32"}
    assert json.loads(receipt_path(file).read_text()) == receipt == check_file(file)
    assert sorted(f.name for f in file.parent.iterdir()) == [NAME, f"{NAME}.json"]


def test_broken_connection_is_resumed_where_it_ended(server, payload, tmp_path):
    file = tmp_path / NAME
    server.limit = 10_000
    with pytest.raises(DatasetError, match=rf"ended after 10000 of {len(payload)} bytes"):
        fetch(file, [place(server)], progress=False)
    assert not file.exists()
    server.limit = None
    fetch(file, [place(server)], progress=False)
    assert server.asked == [None, "bytes=10000-"]
    assert file.read_bytes() == payload


def test_server_without_ranges_starts_again(server, payload, tmp_path):
    file = tmp_path / NAME
    server.limit, server.understands_ranges = 10_000, False
    with pytest.raises(DatasetError, match="could not be fetched"):
        fetch(file, [place(server)], progress=False)
    server.limit = None
    fetch(file, [place(server)], progress=False)
    assert file.read_bytes() == payload


def test_complete_part_is_accepted_without_more_bytes(server, payload, tmp_path, monkeypatch):
    file = tmp_path / NAME
    with monkeypatch.context() as patch:
        patch.setattr(download, "_accept", lambda *_: (_ for _ in ()).throw(DatasetError("stopped here")))
        with pytest.raises(DatasetError, match="stopped here"):
            fetch(file, [place(server)], progress=False)
    fetch(file, [place(server)], progress=False)
    assert server.asked == [None, f"bytes={len(payload)}-"] and file.read_bytes() == payload


def test_sources_are_tried_in_order_and_all_faults_are_told(server, tmp_path):
    missing = Source(str(tmp_path / "nowhere"), "user")
    receipt = fetch(tmp_path / NAME, [missing, place(server, "official")], progress=False)
    assert receipt["source"] == "official"
    with pytest.raises(DatasetError, match=r"(?s)nowhere/other\.npz.*404.*PCBF_DATA_SOURCES"):
        fetch(tmp_path / "other.npz", [missing, place(server)], progress=False)


def test_own_folder_and_its_receipt(payload, tmp_path):
    own = tmp_path / "own bucket"
    own.mkdir()
    (own / NAME).write_bytes(payload)
    receipt = fetch(tmp_path / "a" / NAME, [Source(str(own), "user")], progress=False)
    assert (receipt["source"], receipt["address"]) == ("user", "file")
    download.write_receipt(own / NAME, "official")
    assert fetch(tmp_path / "b" / NAME, [Source(own.as_uri(), "user")], progress=False)["source"] == "official"
    text = receipt_path(own / NAME).read_text().replace(receipt["sha256"], "0" * 64)
    receipt_path(own / NAME).write_text(text)
    with pytest.raises(DatasetError, match="not the file that"):
        fetch(tmp_path / "c" / NAME, [Source(str(own), "user")], progress=False)


def test_own_places_come_first(monkeypatch):
    monkeypatch.setenv("PCBF_DATA_SOURCES", "/a https://user:secret@b.example/data")
    kinds = [(source.place, source.kind) for source in download.default_sources(["/c"])]
    assert kinds[:3] == [("/c", "user"), ("/a", "user"), ("https://user:secret@b.example/data", "user")]
    assert [kind for _, kind in kinds[3:]] == ["official", "mirror"]
    assert download._public("https://user:secret@b.example/x.npz?token=1") == "https://b.example/x.npz"


def test_what_is_not_an_npz_is_not_accepted(server, tmp_path):
    server.files[NAME] = b"<html>moved</html>"
    with pytest.raises(DatasetError, match="not a whole npz file"):
        fetch(tmp_path / NAME, [place(server)], progress=False)
    assert list(tmp_path.glob(f"{NAME}*")) == []


@pytest.mark.parametrize("with_receipt", [True, False])
def test_damaged_file_is_named_and_kept(server, payload, tmp_path, with_receipt):
    file = tmp_path / NAME
    file.write_bytes(payload)
    if with_receipt:
        assert check_file(file)["source"] == "found"
    file.write_bytes(payload[:-100])
    with pytest.raises(DatasetError, match=rf"{NAME}.*(bytes|truncated).*[Mm]ove it away or delete it"):
        fetch(file, [place(server)], progress=False)
    assert file.read_bytes() == payload[:-100] and server.asked == []


def test_changed_bytes_of_the_same_length_are_noticed(payload, tmp_path):
    file = tmp_path / NAME
    file.write_bytes(payload)
    check_file(file)
    file.write_bytes(payload[:5000] + bytes([payload[5000] ^ 1]) + payload[5001:])
    with pytest.raises(DatasetError, match="SHA-256"):
        check_file(file)


def test_pickled_arrays_are_refused(tmp_path):
    np.savez(tmp_path / NAME, observations=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DatasetError, match="pickle"):
        check_file(tmp_path / NAME)


def test_generated_file_stays_local_whatever_its_receipt_says(tmp_path):
    mark = {download.MARK: np.array(json.dumps({"seed": 0}))}
    np.savez(tmp_path / NAME, allow_pickle=False, observations=np.zeros(3), **mark)
    assert download.write_receipt(tmp_path / NAME, "official")["source"] == "local"
    receipt = fetch(tmp_path / "copy" / NAME, [Source(str(tmp_path), "official")], progress=False)
    assert receipt["source"] == "local" and receipt["local"] == {"seed": 0}
