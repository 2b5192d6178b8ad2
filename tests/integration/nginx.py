"""A real nginx in front of a loopback server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
MISSING = "nginx is not installed"


@contextmanager
def nginx(folder: Path, upstream: str, settings: str = "", *, tls: bool = False) -> Iterator[str]:
    """Its URL while it runs. ``settings`` stand in the server block; with ``tls`` it uses folder/leaf.pem."""
    port = _free()
    pem = f"ssl_certificate {folder}/leaf.pem; ssl_certificate_key {folder}/leaf.pem;" if tls else ""
    places = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("proxy", "client_body", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{ worker_connections 256; }}\n"
        f"http {{ access_log off; {places}\n"
        f"  server {{ listen 127.0.0.1:{port}{' ssl' if tls else ''}; {pem} {settings}\n"
        f"    location / {{ proxy_pass {upstream}; proxy_http_version 1.1; proxy_set_header Connection ''; }} }} }}\n"
    )
    command = [str(NGINX), "-e", f"{folder}/error.log", "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(port, process, folder)
            yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        finally:
            process.terminate()


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    for _ in range(200):
        if process.poll() is not None:
            raise RuntimeError((folder / "error.log").read_text())
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("nginx does not listen")
