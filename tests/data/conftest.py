import functools
import http.server
import os
import pickle
import struct
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def real_data():
    """The data root of this machine, for tests that need a published file."""

    def find(file):
        root = Path(os.environ.get("FREETICKETS_DATA", "/nowhere"))
        if not (root / file).exists():
            pytest.skip(f"set FREETICKETS_DATA to a folder that holds {file}")
        return root

    return find


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A machine without any data, and nowhere to download it from."""
    monkeypatch.delenv("FREETICKETS_DATA", raising=False)
    monkeypatch.setenv("FREETICKETS_MIRROR", "http://127.0.0.1:9/nothing/")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def image_tree(tmp_path):
    """Write a folder of images by class, each of a colour that tells its class and number."""

    def write(size=(12, 10), classes=("cat", "dog"), count=3):
        for split in ("train", "val"):
            for label, name in enumerate(classes):
                folder = tmp_path / "pictures" / split / name
                folder.mkdir(parents=True)
                for number in range(count):
                    image = Image.new("RGB", size, (100 * label, 10 * number, 7))
                    image.save(folder / f"{number}.png")
        return tmp_path / "pictures"

    return write


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        if not self.path.endswith("broken.bin"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 400)  # and then the connection closes
        return None


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A web server of this machine, and the folder whose files it serves."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("FREETICKETS_MIRROR", raising=False)
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", folder
        running.shutdown()
        thread.join()


class _AsPython2(pickle._Pickler):
    """Writes byte strings as Python 2 did, as in CIFAR's files."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value):
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes


@pytest.fixture
def write_pickle():
    """Write a pickle in the dialect of CIFAR's files."""

    def write(path, value):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            _AsPython2(file, protocol=2).dump(value)
        content = path.read_bytes()
        path.write_bytes(content.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"))

    return write


@pytest.fixture
def rng():
    return np.random.default_rng(0)
