import errno
import hashlib

import pytest

from freetickets.data.download import Publisher, fetch
from freetickets.errors import FreeTicketsError

CONTENT = bytes(range(256)) * 5000
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def address(server):
    url, folder = server
    (folder / "file.bin").write_bytes(CONTENT)
    return url


def leftovers(target):
    return list(target.parent.iterdir()) if target.parent.exists() else []


def test_a_file_arrives_whole_from_publisher_or_mirror(address, tmp_path, capsys, monkeypatch):
    target = tmp_path / "new" / "folder" / "file.bin"
    assert fetch(f"{address}/file.bin", target, MD5) == target
    assert target.read_bytes() == CONTENT
    assert leftovers(target) == [target]
    output = capsys.readouterr()
    assert output.out == ""
    assert "downloading" in output.err
    assert output.err.splitlines()[-1].startswith("[100%] file.bin")
    monkeypatch.setenv("FREETICKETS_MIRROR", address)
    fetch("https://publisher.invalid/some/where/file.bin", target, MD5)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("file", "largest", "message"),
    [
        ("file.bin", 1 << 30, "wrong checksum"),
        ("broken.bin", 1 << 30, "400 of 1,000 bytes"),
        ("file.bin", len(CONTENT) - 1, "far larger than any file that is offered"),
    ],
)
def test_a_failed_transfer_leaves_all(
    refused, address, tmp_path, monkeypatch, file, largest, message
):
    monkeypatch.setattr("freetickets.data.download._LARGEST", largest)
    target = tmp_path / "new" / file
    refused(message, fetch, f"{address}/{file}", target, "0" * 32)
    assert leftovers(target) == []
    target.write_bytes(b"old")
    refused(message, fetch, f"{address}/{file}", target, "0" * 32)
    assert target.read_bytes() == b"old"


def test_a_missing_file_a_dead_server_and_a_bad_address_are_named(refused, address, tmp_path):
    refused("404", fetch, f"{address}/nothing.bin", tmp_path / "a", MD5)
    dead = "http://127.0.0.1:9/file.bin"
    refused("check the network, or put the file at", fetch, dead, tmp_path / "a", MD5)
    refused("unknown url type", fetch, "nonsense", tmp_path / "a", MD5)
    (tmp_path / "file").write_text("")
    refused("cannot keep", fetch, f"{address}/file.bin", tmp_path / "file" / "a", MD5)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_full_disk_or_an_interruption_leaves_nothing_behind(tmp_path, monkeypatch, error):
    def stop(url, file):
        file.write(b"half")
        raise error

    monkeypatch.setattr("freetickets.data.download._transfer", stop)
    with pytest.raises((FreeTicketsError, KeyboardInterrupt), match=r"the disk is full|^$"):
        fetch("http://127.0.0.1:9/file.bin", tmp_path / "new" / "a", MD5)
    assert leftovers(tmp_path / "new" / "a") == []


def test_what_is_there_is_not_downloaded(refused, no_data):
    publisher = Publisher("https://publisher.invalid", (".", "b"), {"file.bin": MD5})
    refused("--data-dir, or allow the download", publisher.find, no_data, "file.bin", False, "file")
    (no_data / "b").mkdir()
    for name in ("b/file", "b/file.bin", "file"):  # the last folder last, the packed file first
        (no_data / name).write_bytes(CONTENT)
        assert publisher.find(no_data, "file.bin", True, "file") == no_data / name
