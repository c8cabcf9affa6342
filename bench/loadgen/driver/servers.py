"""The servers that generators are pointed at."""

from .process import Server, Trouble, free_port, output_of


def recorder(bench, *, body=64, fast=False, spin=False, capacity=0, out=None):
    """Our own: it notes when requests arrive.

    `fast`: over io_uring, if there is one: over epoll it costs as much per request as the floor,
    and would be what limits a better generator. `spin`: it looks for requests without sleeping,
    so that no wake-up of its own is in an arrival.
    """
    words = [bench.helper, "recorder", "--body", body]
    if fast and bench.uring:
        words += ["--uring"]
    if spin:
        words += ["--spin"]
    if out:
        words += ["--capacity", capacity, "--out", out]
    return Server(bench, words)


def meshtax(bench, *, body=1024):
    port = free_port()
    listen = f"127.0.0.1:{port}"
    return Server(bench, [bench.meshtax, "serve", "--listen", listen, "--body", f"{body}B"], port)


def nghttpd(bench, *, body=64):
    """nghttp2's own server: plaintext HTTP/2."""
    if bench.nghttpd is None:
        raise Trouble("nghttpd is not installed")
    port = free_port()
    folder = bench.scratch / "nghttpd"
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_bytes(b"0" * body)
    words = [bench.nghttpd, "--no-tls", "-n1", "-d", folder, "-a", "127.0.0.1", port]
    return Server(bench, words, port)


NGINX = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; multi_accept on; }}
http {{
    access_log off;
    default_type text/plain;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
    server {{
        listen 127.0.0.1:{port}{http2};
        location / {{ return 200 "{text}"; }}
    }}
}}
"""


def nginx(bench, *, body=1024, http2=False):
    """nginx with one process and the cheapest answer that it knows."""
    if bench.nginx is None:
        raise Trouble("nginx is not there")
    port = free_port()
    folder = bench.scratch / "nginx"
    folder.mkdir(exist_ok=True)
    text = ("0123456789" * (body // 10 + 1))[:body]
    config = folder / f"{port}.conf"
    protocol = " http2" if http2 else ""
    config.write_text(NGINX.format(folder=folder, port=port, http2=protocol, text=text))
    return Server(bench, [bench.nginx, "-p", folder, "-c", config, "-e", "stderr"], port)


def has_uring(bench):
    """Whether io_uring is there and allowed."""
    # Its standard input ends at once, and so does it.
    return output_of([bench.helper, "recorder", "--uring"], input="", timeout=5) is not None


def speaks_http2(bench, server):
    """Whether a server answers plaintext HTTP/2."""
    h2load = bench.tools.get("h2load")
    if h2load is None:
        return False
    with server as running:
        url = f"http://127.0.0.1:{running.port}/"
        text = output_of([h2load.path, "-n", 1, "-c", 1, url], timeout=5)
    return text is not None and "1 succeeded" in text
