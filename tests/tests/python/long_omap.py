"""Long omaps under a stock client, while another one writes: python3 long_omap.py CONF POOL

Prints what went wrong, or "ok". The answers are those of a real Ceph 16.2.15.
"""
import subprocess, sys, threading, time
import rados

CONF, POOL = sys.argv[1:3]
MIB = 1 << 20
LONG = 100  # seconds that one operation may take on a busy machine


def connect():
    cluster = rados.Rados(conffile=CONF, rados_id="admin")
    cluster.connect(timeout=60)
    return cluster, cluster.open_ioctx(POOL)


def set_omap(ioctx, name, *requests):
    """One request; each of its operations sets some keys."""
    with rados.WriteOpCtx() as op:
        for keys in requests:
            ioctx.set_omap(op, tuple(keys), tuple(keys.values()))
        ioctx.operate_write_op(op, name)


def omap(ioctx, name):
    found, after = {}, ""
    while True:
        with rados.ReadOpCtx() as op:
            page, _ = ioctx.get_omap_vals(op, after, "", 1000)
            ioctx.operate_read_op(op, name)
            page = list(page)
        if not page:
            return found
        found.update(page)
        after = page[-1][0]


class Other(threading.Thread):
    """Another client: small writes, one after the other, for as long as something long is under way."""

    def __init__(self):
        super().__init__()
        self.over, self.answered, self.longest = threading.Event(), 0, 0.0

    def run(self):
        cluster, ioctx = connect()
        while self.answered < 20 or not self.over.is_set():
            begin = time.time()
            ioctx.write_full("small-%d" % (self.answered % 20), b"x" * 100)
            self.answered, self.longest = self.answered + 1, max(self.longest, time.time() - begin)
        cluster.shutdown()


def beside(what, work):
    """Does it while another client writes, all of whose writes are answered."""
    other, begin = Other(), time.time()
    other.start()
    work()
    seconds = time.time() - begin
    other.over.set()
    other.join(LONG)
    assert not other.is_alive() and other.answered >= 20, "%s: only %d small writes" % (what, other.answered)
    print("%s: %.2f s, beside it %d small writes, the longest %.2f s" % (what, seconds, other.answered, other.longest), flush=True)


def refused(ioctx, name, *requests):
    try:
        set_omap(ioctx, name, *requests)
    except rados.Error as error:
        assert error.errno == 90, error
        return
    raise AssertionError("more than 90 MiB were taken")


def main():
    _, ioctx = connect()
    value = bytes(range(256)) * (17 * MIB // 256)
    beside("a value of 17 MiB", lambda: set_omap(ioctx, "value", {"k": value}))
    assert omap(ioctx, "value") == {"k": value}
    many = {"k%02d" % n: bytes([n]) * MIB for n in range(20)}
    beside("20 values of 1 MiB", lambda: set_omap(ioctx, "many", many))
    assert omap(ioctx, "many") == many
    beside("91 MiB", lambda: refused(ioctx, "value", {"k": bytes(91 * MIB)}))
    beside("3 times 31 MiB", lambda: refused(ioctx, "many", *({str(n): bytes(31 * MIB)} for n in range(3))))
    for n in range(32):
        set_omap(ioctx, "from", {"k%02d.%04d" % (n, k): bytes([n]) * 1024 for k in range(1024)})
    copy = ["rados", "-c", CONF, "-p", POOL, "cp", "from", "to"]
    beside("rados cp of an omap of 32 MiB", lambda: subprocess.run(copy, check=True, timeout=LONG))
    assert omap(ioctx, "to") == omap(ioctx, "from")
    print("ok")


main()
