#!/usr/bin/python3
"""Asks a real Ceph (16.2.15) what each caps text allows, and writes what it answers: `verdicts.tsv`, `methods.tsv`, `texts.tsv`,
`mon_verdicts.tsv`.

usage: make_table.py FOLDER   (as root, with ceph-mon, ceph-osd, python3-rados, libradospp-dev and g++; it takes a minute or two)

It starts one monitor and one OSD in memory, with cephx, in a network namespace of its own, gives each text of KEYS a key, and lets each
key do everything in OPS. `numops` is left out of the classes that `x` covers (osd_class_default_list), so that the table has one.
"""

import ctypes as c
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = os.path.join(HERE, "../../../osd/osd/src/cls")
EPERM = -1

# name, caps of the OSD (None: the key has none)
KEYS = [
    ("all", "allow *"),
    ("r", "allow r"),
    ("w", "allow w"),
    ("rw", "allow rw"),
    ("x", "allow x"),
    ("rx", "allow rx"),
    ("wx", "allow wx"),
    ("rwx", "allow rwx"),
    ("class_r", "allow class-read"),
    ("class_w", "allow class-write"),
    ("class_rw", "allow class-read class-write"),
    ("rw_class_r", "allow rw class-read"),
    ("pool_a", "allow rwx pool=a"),
    ("pool_b", "allow rwx pool b"),
    ("all_of_a", "allow * pool=a"),
    ("ns1", "allow rwx namespace=ns1"),
    ("a_ns1s", "allow rwx pool=a namespace=ns1*"),
    ("ns_default", 'allow rwx namespace=""'),
    ("ns_star", 'allow r namespace="*"'),
    ("ns_quoted_s", 'allow rw namespace="ns1"*'),
    ("prefix", "allow rwx object_prefix pre_"),
    ("a_default_prefix", 'allow rwx pool=a namespace="" object_prefix pre_'),
    ("match_first", "allow pool=a namespace=ns1 rw"),
    ("class_lock", "allow class lock"),
    ("lock_get_info", "allow class lock get_info"),
    ("lock_both", "allow class lock get_info, allow class lock lock"),
    ("rw_then_class_lock", "allow rw, allow class lock"),
    ("class_numops", "allow class numops"),
    ("r_then_w", "allow r; allow w"),
    ("r_then_x", "allow r, allow x"),
    ("class_r_then_w", "allow class-read, allow class-write"),
    ("tag", "allow rwx tag myapp role=main"),
    ("tag_any_key", "allow rw tag myapp *=main"),
    ("tag_any_value", "allow rw tag myapp role=*"),
    ("tag_any", "allow rw tag other *=*"),
    ("tag_any_app", 'allow rw tag "*" role=main'),
    ("ns1_tag", "allow rw namespace=ns1 tag myapp role=main"),
    ("rbd", "profile rbd"),
    ("rbd_a", "profile rbd pool=a"),
    ("rbd_a_ns1", "profile rbd pool=a namespace=ns1"),
    ("rbd_ro", "profile rbd-read-only"),
    ("rbd_ro_a_ns1", "profile rbd-read-only pool=a namespace=ns1"),
    ("read_only", "profile read-only"),
    ("read_write_a", "profile read-write pool=a"),
    ("osd", "profile osd"),
    ("no_profile", "profile nothing"),
    ("net", "allow rwx network 127.0.0.0/8"),
    ("net_other", "allow rwx network 10.0.0.0/8"),
    ("net_no_length", "allow rwx network 127.0.0.1"),
    ("net_any", "allow r network 0.0.0.0/0"),
    ("net_v6", "allow rwx network ::/0"),
    ("rbd_net_other", "profile rbd network 10.0.0.0/8"),
    ("auid", "allow rwx auid 5"),
    ("several", "profile rbd-read-only pool=a, allow rw pool=b namespace=ns1, allow class-write pool=b"),
    ("none", None),
    ("bad", "allow rwz"),
    ("half_bad", "allow r, allow rwz"),
]

# Texts that no command takes: these keys are in the monitor's first keyring.
BAD = ("auid", "bad", "half_bad")

# Where the operations of short lists go: pool, namespace, object, locator.
PLACES = [
    ("a", "ns1", "obj", ""),
    ("a", "ns10", "obj", ""),
    ("a", "ns2", "obj", ""),
    ("b", "", "obj", ""),
    ("b", "ns1", "obj", ""),
    ("a", "", "pre_obj", ""),
    ("b", "ns1", "pre_obj", ""),
    ("a", "", "obj", "pre_key"),
    ("a", "", "pre_obj", "key"),
    ("b", "", "rbd_info", ""),
    ("b", "ns1", "rbd_info", ""),
    ("b", "", "rbd_children", ""),
    ("b", "ns1", "rbd_mirroring", ""),
    ("a", "ns1", "rbd_header.1", ""),
    ("a", "", "rbd_header.1", ""),
]
SHORT = ["1201", "2201", "1401.lock.get_info", "1401.lock.lock", "1401.rbd.metadata_list", "1401.rbd.child_attach",
         "1401.rbd.child_detach", "1201 1401.lock.get_info", "1505"]

# At pool a, default namespace, object obj. Words of a request are codes of operations, with the class and method of a call; a
# leading word says how it is asked where that matters.
LONG = SHORT + [
    "1202",  # stat
    "1205",  # sparse-read
    "121f",  # checksum
    "1220",  # cmpext
    "1208",  # assert-ver
    "2202", "2203", "2204", "2205", "2206", "220d", "2223", "2226",
    "1211", "1212", "1213", "1214", "1219",
    "2215", "2216", "2217", "2218", "222c",
    "1301", "1302", "1303", "2301", "2304",
    "220e",  # rollback
    "120a",  # list-snaps
    "1209",  # list-watchers
    "220f",  # watch
    "1206",  # notify
    "222d",  # copy-from2
    "821f",  # cache-flush
    "8221",  # cache-try-flush
    "8220",  # cache-evict
    "2224", "2225",  # cache-pin and its opposite
    "1202 2201",  # assert-exists, then write
    "1303 2206",
    "1220 2201",
    "1201 1202 1301",
    "2201 1401.lock.lock",
    "1202 2201 1401.lock.lock",
    "1401.lock.get_info 1401.hello.say_hello",
    "1401.lock.get_info 1401.lock.lock",
    "1401.lock.get_info 1401.numops.add",
    "1401.hello.say_hello",
    "1401.hello.record_hello",
    "1401.version.set",
    "1401.numops.add",
    "1401.no_class.x",
    "1401.sdk.test_coverage_write",  # there, and not loaded
    "1401.lock.no_method",
    "1202 1401.lock.no_method",
]
# With another namespace than the object's: all of them.
ALL_NAMESPACES = "\1"

TEXTS = ["allow", "allow ", "", " ", "allow r ", " allow r", "\nallow r\n", "allow\tr", "allow r\npool=a", "allow r,", ",allow r", "allow r ,allow w",
         "allow r;;allow w", "allow r\n,allow w", "allow r,\nallow w", "allow  r  pool  a", "allow r pool = a", "allow r pool= a", "allow r pool =a",
         "allow r pool a namespace b", "allow r namespace b pool a", "allow r pool=\"a b\"", "allow r pool='a b'", "allow r pool=\"\"", "allow r pool=\"a",
         "allow r pool=a:b", "allow r namespace=", "allow r namespace=''", "allow r namespace=*", "allow r namespace='*'", "allow r namespace=a*", "allow r namespace=a*b",
         "allow r namespace a *", "allow r object_prefix=a", "allow r object_prefix a", "allow r object_prefix 'a b'", "allow r object_prefix \"\"",
         "allow r object_prefix a pool=b", "allow object_prefix a r", "allow wr", "allow xr", "allow rwxr", "allow rr", "allow R", "ALLOW r", "allow r w",
         "allow rclass-read", "allow r class-read class-write", "allow r class-write class-read", "allow class-write", "allow class-read,allow class-write",
         "allow all", "allow allow", "allow * r", "allow *r", "allow all pool=a", "allow pool=a *", "allow pool=a", "allow pool=a class lock",
         "allow class lock pool=a", "allow class lock get pool=a", "allow class lock get pool a", "allow class lock network 1.0.0.0/8",
         "allow class lock get network 1.0.0.0/8", "allow class 'lo ck' 'a'", "allow class", "allow class lock a b", "allow r class lock", "allow class r",
         "allow r tag a b=c", "allow r tag a b = c", "allow r tag a *=*", "allow r tag a all=c", "allow r tag a allx=c", "allow r tag a b=allx", "allow r tag a b=all",
         "allow r tag * b=c", "allow r tag all b=c", "allow r tag a b", "allow r tag a", "allow r tag a b=c pool=d", "allow r tag a b=c namespace=d",
         "allow r namespace=d tag a b=c", "allow r pool=x tag a b=c", "allow r tag a b=c object_prefix d", "allow tag a b=c r", "allow r tag a 'x y'='z'",
         "allow r auid 5", "allow r auid -5", "allow r auid x", "allow r auid 5 object_prefix a", "allow r auid 5 pool=a", "allow auid 5 r", "allow r auid 99999999999",
         "allow r auid 2147483647", "allow r auid +5", "allow r auid=5", "allow r network 1.2.3.4/8", "allow r network 1.2.3.4", "allow r network=1.2.3.4/8", "allow r network [::1]/128",
         "allow r network a/b", "allow r network xyz", "allow r network ", "allow r network 1.0.0.0/8 pool=a", "allow r pool=a network 1.0.0.0/8", "allow network 1.0.0.0/8 r",
         "profile rbd", "profile=rbd", "profile 'rbd'", "profile", "profile  rbd  pool  a", "allow profile rbd", "profile rbd namespace=a", "profile rbd pool=a namespace=b",
         "profile rbd pool=a object_prefix b", "profile rbd tag a b=c", "profile osd", "profile rbd,profile osd", "profile rbd allow r", "profile rbd network 1.0.0.0/8",
         "profile rbd class-read", "profilerbd", "allow r pool=a,b", "allow r pool=\u00e9", "allow r pool=\"\u00e9\"", "allow rwx pool=.rgw/x-y_z", "allow  rwx", "allow r\u00a0",
         "allow r\rpool=a", "allow r\vpool=a", "allow r\fpool=a", "allow r\v", "\fallow r", "allow r\r,allow w", "allowr", "allow r pool=r w", "allow w pool=x r",
         "allow r class-read pool=a namespace=b object_prefix c network 1.0.0.0/8", "deny r", "allow r pool=a;allow w pool=b;profile rbd", "allow command \"x\"", "allow service osd r"]

MON_TEXTS = ["", " ", "allow", "allow r", "allow  r", " allow r ", "\tallow r\n", "allow\rr", "allow rwx", "allow wr", "allow *", "allow all", "allow * r", "allow r,allow w", "allow r ; allow w",
             "allow r\n, allow w", "allow r\n\n, allow w", "allow r,\nallow w", "allow r  ,  allow w", "allow r,", "allow service osd r", "allow service=osd r", "allow service osd", "allow service osd rw x", "allow service 'osd' *", "allow r service osd",
             "allow service osd r network 1.0.0.0/8", "allow r network 1.0.0.0/8", "allow r network x", "allow r network", "allow command x", "allow command=x", "allow command \"osd new\"", "allow command osd new", "allow command 'osd new' with a=b", "allow command x with a=b c=d",
             "allow command x with a prefix b", "allow command x with a regex \"^[a-z]+$\"", "allow command x with a=b, allow r", "allow command x with", "allow command x with a", "allow command x with a = b", "allow command x with a=b network 1.0.0.0/8", "allow command x r",
             "allow command x with a=b c prefix d e regex f", "allow command x with a regex ab)", "profile osd", "allow profile osd", "profile=osd", "allow profile=osd", "profile nothing", "profile osd r", "profile", "profile osd network 1.0.0.0/8", "profile 'rbd'",
             "allow r fsname=a", "allow r fsname a", "allow rw fsname=a network 1.0.0.0/8", "allow rw network 1.0.0.0/8 fsname=a", "allow r fsname='a'", "allow r fsname=a/b", "allow rw fsname a network a", "allow r fsname=a, allow r",
             "allow * fsname=a", "allow r fsname=a x", "allow fsname=a", "allow service osd r fsname=a", "allow profile osd, allow r", "allow x", "allow rx", "allow wx", "allowr", "allow r w", "deny", "allow r profile osd", "allow profile", "allow service", "allow command",
             "allow command x with a=b a=c", "allow service a-b_c.d/e rwx", "allow service \"a:b\" rwx"]

# The same for the monitor: caps, all with what a client needs to begin a session, and commands.
MON = "allow service mon r, "
MON_KEYS = [
    ("all", "allow *"),
    ("r", "allow r"),
    ("rw", "allow rw"),
    ("rx", "allow rx"),
    ("rwx", "allow rwx"),
    ("r_w", "allow r, allow w"),
    ("r_w_x", "allow r, allow w, allow x"),
    ("osd_r", MON + "allow service osd r"),
    ("osd_rw", MON + "allow service osd rw"),
    ("osd_r_osd_w", MON + "allow service osd r, allow service osd w"),
    ("osd_all", MON + "allow service osd *"),
    ("auth_r", MON + "allow service auth r"),
    ("auth_rx", MON + "allow service auth rx"),
    ("keys_rw", MON + "allow service config-key rw"),
    ("set", MON + 'allow command "osd set"'),
    ("set_noout", MON + 'allow command "osd set" with key=noout'),
    ("get_prefix", MON + 'allow command "config-key get" with key prefix a/'),
    ("get_equal", MON + 'allow command "config-key get" with key=a/b'),
    ("get_regex", MON + 'allow command "config-key get" with key regex "^[a-z]/b+$"'),
    ("get_part", MON + 'allow command "config-key get" with key regex "[a-z]"'),
    ("get_other", MON + 'allow command "config-key get" with key=a/b other=x'),
    ("net", MON + "allow rw network 127.0.0.0/8"),
    ("net_other", MON + "allow rw network 10.0.0.0/8"),
    ("all_net_other", MON + "allow * network 10.0.0.0/8"),
    ("all_fs", "allow * fsname=x"),
] + [(f"profile_{name.replace('-', '_')}", MON + f"allow profile {name}") for name in (
    "osd", "mgr", "rbd", "bootstrap-osd", "simple-rados-client", "read-only", "read-write", "fs-client", "crash", "role-definer",
    "nothing")]
MON_COMMANDS = [dict(words, prefix=prefix) for prefix, words in [
    ("mon dump", {}), ("status", {}), ("mon getmap", {}), ("osd dump", {}), ("osd pool ls", {}), ("osd tree", {}), ("mds stat", {}), ("fs ls", {}),
    ("osd set", {"key": "noout"}), ("osd set", {"key": "nobackfill"}), ("osd unset", {"key": "noout"}),
    ("osd pool application get", {"pool": "a"}), ("osd pool application set", {"pool": "a", "app": "x", "key": "y", "value": "z"}),
    ("osd blocklist", {"blocklistop": "add", "addr": "10.0.0.1:0/7"}), ("osd blocklist", {"blocklistop": "add", "addr": "10.0.0.1:0/x7"}),
    ("osd blocklist", {"blocklistop": "rm", "addr": "10.0.0.1:0/7"}), ("osd blacklist", {"blacklistop": "add", "addr": "10.0.0.1:0/7"}),
    ("osd purge-new", {"id": "77"}), ("osd new", {"uuid": "no"}),
    ("auth ls", {}), ("auth get", {"entity": "client.r"}), ("auth get-or-create", {"entity": "client.r"}), ("auth print-key", {"entity": "client.r"}),
    ("auth rm", {"entity": "client.nobody"}), ("auth caps", {"entity": "client.nobody", "caps": ["mon"]}),
    ("config-key get", {"key": "a/b"}), ("config-key get", {"key": "b/b"}), ("config-key exists", {"key": "a/b"}), ("config-key set", {"key": "a/b", "val": "x"}),
    ("config-key get", {"key": "daemon-private/ENTITY/x"}), ("config-key set", {"key": "daemon-private/ENTITY/x", "val": "x"}),
    ("config-key get", {"key": "daemon-private/client.other/x"}), ("config-key dump", {}),
    ("log", {"logtext": ["x"]}), ("config get", {"who": "osd.0"}), ("config set", {"who": "osd.7", "name": "debug_ms", "value": "0"}), ("mgr dump", {}),
]]

SHIM = """
#include <rados/librados.hpp>
using namespace librados;
static int plain(rados_ioctx_t c, const char *oid, ObjectReadOperation &op, int flags) {
  IoCtx io; IoCtx::from_rados_ioctx_t(c, io);
  bufferlist out; AioCompletion *done = Rados::aio_create_completion();
  io.aio_operate(oid, done, &op, flags, &out); done->wait_for_complete();
  int r = done->get_return_value(); done->release(); return r;
}
extern "C" {
int shim_copy_from(rados_ioctx_t to, const char *oid, rados_ioctx_t from, const char *source) {
  IoCtx t, f; IoCtx::from_rados_ioctx_t(to, t); IoCtx::from_rados_ioctx_t(from, f);
  ObjectWriteOperation op; op.copy_from2(source, f, 0, 0, 0, 0); return t.operate(oid, &op);
}
int shim_flush(rados_ioctx_t c, const char *oid) { ObjectReadOperation op; op.cache_flush(); return plain(c, oid, op, OPERATION_IGNORE_OVERLAY); }
int shim_try_flush(rados_ioctx_t c, const char *oid) { ObjectReadOperation op; op.cache_try_flush(); return plain(c, oid, op, OPERATION_IGNORE_OVERLAY | OPERATION_SKIPRWLOCKS); }
int shim_evict(rados_ioctx_t c, const char *oid) { ObjectReadOperation op; op.cache_evict(); return plain(c, oid, op, OPERATION_IGNORE_OVERLAY | OPERATION_SKIPRWLOCKS); }
int shim_list_snaps(rados_ioctx_t c, const char *oid) { IoCtx io; IoCtx::from_rados_ioctx_t(c, io); snap_set_t s; io.snap_set_read(SNAP_DIR); return io.list_snaps(oid, &s); }
int shim_list_watchers(rados_ioctx_t c, const char *oid) {
  IoCtx io; IoCtx::from_rados_ioctx_t(c, io); std::list<obj_watch_t> l; return io.list_watchers(oid, &l);
}
int shim_cmpext(rados_ioctx_t c, const char *oid) {
  IoCtx io; IoCtx::from_rados_ioctx_t(c, io); bufferlist b; b.append("abcd"); return io.cmpext(oid, 0, b);
}
int shim_assert_version(rados_ioctx_t c, const char *oid, uint64_t v) {
  ObjectReadOperation op; op.assert_version(v); return plain(c, oid, op, 0);
}
int shim_omap_header(rados_ioctx_t c, const char *oid) {
  ObjectReadOperation op; bufferlist b; int r = 0; op.omap_get_header(&b, &r); return plain(c, oid, op, 0);
}
int shim_omap_set_header(rados_ioctx_t c, const char *oid) {
  IoCtx io; IoCtx::from_rados_ioctx_t(c, io); bufferlist b; b.append("x"); return io.omap_set_header(oid, b);
}
int shim_sparse_read(rados_ioctx_t c, const char *oid) {
  IoCtx io; IoCtx::from_rados_ioctx_t(c, io); std::map<uint64_t, uint64_t> m; bufferlist b; int r = io.sparse_read(oid, m, b, 4, 0);
  return r < 0 ? r : 0;
}
int shim_rollback(rados_ioctx_t c, const char *oid, uint64_t snap) {
  IoCtx io; IoCtx::from_rados_ioctx_t(c, io); return io.selfmanaged_snap_rollback(oid, snap);
}
}
"""


def inside():
    """Starts this script again in a network namespace, with a limit of its time."""
    if "--inside" not in sys.argv:
        os.execvp("timeout", ["timeout", "-k", "20", "1500", "unshare", "-n", sys.executable, __file__, "--inside"] + sys.argv[1:])
    subprocess.check_call(["ip", "link", "set", "lo", "up"])


class Cluster:
    def __init__(self, folder):
        self.folder, self.children = folder, []
        for sub in ("mon", "osd", "run"):
            os.mkdir(f"{folder}/{sub}")
        self.conf = f"{folder}/ceph.conf"
        fsid = open("/proc/sys/kernel/random/uuid").read().strip()
        default = "cephfs hello journal lock log otp rbd refcount rgw rgw_gc timeindex user version cas cmpomap queue 2pc_queue fifo"
        with open(self.conf, "w") as out:
            out.write(f"""[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:3300,v1:127.0.0.1:6789]
mon_initial_members = a
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
keyring = {folder}/keyring
run_dir = {folder}/run
pid_file = {folder}/run/$type.$id.pid
admin_socket = {folder}/run/$name.$pid.asok
log_file = {folder}/$name.log
mon_data = {folder}/mon
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = 1073741824
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_class_default_list = {default}
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_data_avail_crit = 1
[client]
log_file =
admin_socket =
""")
        names = ["mon.", "client.admin", "osd.0"] + [f"client.{name}" for name in BAD]
        caps = {"mon.": ["mon", "allow *"], "client.admin": ["mon", "allow *", "osd", "allow *"],
                "osd.0": ["mon", "allow profile osd", "osd", "allow *"]}
        for name in names:
            text = dict(KEYS).get(name.split(".")[1])
            words = caps.get(name) or ["mon", "allow r", "osd", text]
            given = [w for i in range(0, len(words), 2) for w in ("--cap", words[i], words[i + 1])]
            create = [] if os.path.exists(f"{folder}/keyring") else ["--create-keyring"]
            subprocess.check_call(["ceph-authtool", *create, f"{folder}/keyring", "--gen-key", "-n", name, *given],
                                  stdout=subprocess.DEVNULL)
        run = lambda *words: subprocess.check_call(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", "[v2:127.0.0.1:3300,v1:127.0.0.1:6789]",
            "--set-min-mon-release", "pacific", f"{folder}/monmap")
        run("ceph-mon", "-c", self.conf, "--mkfs", "-i", "a", "--monmap", f"{folder}/monmap", "--keyring", f"{folder}/keyring")
        self.start("ceph-mon", "-c", self.conf, "-i", "a", "-f")
        import rados
        self.admin = self.connect("admin", 60)
        uuid = open("/proc/sys/kernel/random/uuid").read().strip()
        self.command(prefix="osd new", uuid=uuid)
        run("ceph-osd", "-c", self.conf, "-i", "0", "--mkfs", "--osd-uuid", uuid, "--no-mon-config")
        self.start("ceph-osd", "-c", self.conf, "-i", "0", "-f")
        for _ in range(120):
            if json.loads(self.command(prefix="osd stat", format="json"))["num_up_osds"] == 1:
                break
            time.sleep(0.5)
        for pool, role in (("a", "main"), ("b", "second")):
            self.command(prefix="osd pool create", pool=pool, pg_num=4, pgp_num=4)
            self.command(prefix="osd pool set", pool=pool, var="size", val="1", yes_i_really_mean_it=True)
            for app in ("rbd", "myapp") + (("other",) if pool == "b" else ()):
                self.command(prefix="osd pool application enable", pool=pool, app=app, yes_i_really_mean_it=True)
            self.command(prefix="osd pool application set", pool=pool, app="myapp", key="role", value=role)
        time.sleep(3)

    def start(self, *words):
        self.children.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def stop(self):
        for child in reversed(self.children):
            child.kill()
            child.wait()

    def connect(self, name, timeout=20):
        import rados
        client = rados.Rados(conffile=self.conf, rados_id=name)
        client.conf_set("rados_osd_op_timeout", "20")
        client.conf_set("rados_mon_op_timeout", str(timeout))
        client.connect(timeout=timeout)
        return client

    def answer(self, **words):
        return self.admin.mon_command(json.dumps(words), b"", 20)

    def command(self, **words):
        code, out, why = self.answer(**words)
        assert code == 0, f"{words}: {code} {why}"
        return out


LIB = c.CDLL("librados.so.2")
LIB.rados_create_write_op.restype = c.c_void_p
LIB.rados_create_read_op.restype = c.c_void_p
PTR, SIZE, U64 = c.c_void_p, c.c_size_t, c.c_uint64


class Place:
    """An object, as one key sees it."""

    def __init__(self, cluster, pool, nspace, name, locator=""):
        self.cluster, self.name, self.io = PTR(cluster), name.encode(), PTR()
        self.pool, self.nspace = pool.encode(), nspace
        self.io = self.context(nspace)
        if locator:
            LIB.rados_ioctx_locator_set_key(self.io, locator.encode())

    def context(self, nspace):
        io = PTR()
        assert LIB.rados_ioctx_create(self.cluster, self.pool, c.byref(io)) == 0
        LIB.rados_ioctx_set_namespace(io, nspace.encode())
        return io

    def close(self):
        LIB.rados_ioctx_destroy(self.io)


def words(*items):
    return (c.c_char_p * len(items))(*items), (SIZE * len(items))(*[len(item) for item in items])


def method_input(cls, method):
    text = lambda word: len(word).to_bytes(4, "little") + word
    section = lambda v, body: bytes([v, 1]) + len(body).to_bytes(4, "little") + body
    if (cls, method) == ("lock", "get_info"):
        return section(1, text(b"name"))
    if (cls, method) == ("lock", "lock"):
        return section(1, text(b"name") + bytes([1]) + text(b"cookie") + text(b"") + text(b"") + bytes(8) + bytes([0]))
    if (cls, method) == ("rbd", "metadata_list"):
        return text(b"") + (10).to_bytes(8, "little")
    return b""


def many(place, codes):
    """One request of several operations; the result is the request's."""
    name, io, keep = place.name, place.io, []
    writes = any(int(code.split(".")[0], 16) & 0x2000 or code.split(".")[1:] in WRITING for code in codes)
    op = PTR(LIB.rados_create_write_op() if writes else LIB.rados_create_read_op())
    f = lambda word: getattr(LIB, ("rados_write_op_" if writes else "rados_read_op_") + word)
    for code in codes:
        if code.startswith("1401."):
            cls, method = code.split(".")[1:]
            data = method_input(cls, method)
            if writes:
                rval = c.c_int()
                keep.append(rval)
                f("exec")(op, cls.encode(), method.encode(), data, SIZE(len(data)), c.byref(rval))
            else:
                out, size, rval = c.c_char_p(), SIZE(), c.c_int()
                keep += [out, size, rval]
                f("exec")(op, cls.encode(), method.encode(), data, SIZE(len(data)), c.byref(out), c.byref(size), c.byref(rval))
            continue
        out, out2, n, m, r = c.create_string_buffer(4096), PTR(), SIZE(), c.c_ubyte(), c.c_int()
        keep += [out, out2, n, m, r]
        n64, t = U64(), c.c_long()
        keep += [n64, t]
        keys, key_sizes = words(b"key")
        vals, val_sizes = words(b"value")
        keep += [keys, key_sizes, vals, val_sizes]
        if code == "1201":
            f("read")(op, U64(0), SIZE(4), out, c.byref(n), c.byref(r))
        elif code == "1202" and writes:
            f("assert_exists")(op)
        elif code == "1202":
            f("stat")(op, c.byref(n64), c.byref(t), c.byref(r))
        elif code == "121f":
            f("checksum")(op, c.c_int(2), b"\xff" * 4, SIZE(4), U64(0), SIZE(4), SIZE(0), out, SIZE(64), c.byref(r))
        elif code == "1220":
            f("cmpext")(op, b"abcd", SIZE(4), U64(0), c.byref(r))
        elif code == "1303":
            f("cmpxattr")(op, b"attr", c.c_uint8(1), b"value", SIZE(5))
        elif code == "1219":
            f("omap_cmp2")(op, b"key", c.c_uint8(1), b"value", SIZE(3), SIZE(5), c.byref(r))
        elif code == "1301" or code == "1302":
            f("getxattrs")(op, c.byref(out2), c.byref(r))
        elif code == "1211":
            f("omap_get_keys2")(op, b"", U64(9), c.byref(out2), c.byref(m), c.byref(r))
        elif code == "1212":
            f("omap_get_vals2")(op, b"", b"", U64(9), c.byref(out2), c.byref(m), c.byref(r))
        elif code == "1214":
            f("omap_get_vals_by_keys2")(op, keys, SIZE(1), key_sizes, c.byref(out2), c.byref(r))
        elif code == "2201":
            f("write")(op, b"abcd", SIZE(4), U64(0))
        elif code == "2202":
            f("write_full")(op, b"abcd", SIZE(4))
        elif code == "2203":
            f("truncate")(op, U64(2))
        elif code == "2204":
            f("zero")(op, U64(0), U64(2))
        elif code == "2205":
            f("remove")(op)
        elif code == "2206":
            f("append")(op, b"abcd", SIZE(4))
        elif code == "220d":
            f("create")(op, c.c_int(0), None)
        elif code == "2223":
            f("set_alloc_hint2")(op, U64(4096), U64(4096), c.c_uint32(0))
        elif code == "2226":
            f("writesame")(op, b"ab", SIZE(2), SIZE(4), U64(0))
        elif code == "2215":
            f("omap_set2")(op, keys, vals, key_sizes, val_sizes, SIZE(1))
        elif code == "2217":
            f("omap_clear")(op)
        elif code == "2218":
            f("omap_rm_keys2")(op, keys, key_sizes, SIZE(1))
        elif code == "222c":
            f("omap_rm_range2")(op, b"a", SIZE(1), b"b", SIZE(1))
        elif code == "2301":
            f("setxattr")(op, b"attr", b"value", SIZE(5))
        elif code == "2304":
            f("rmxattr")(op, b"attr")
        else:
            raise KeyError(code)
    if writes:
        return LIB.rados_write_op_operate2(op, io, name, None, 0)
    return LIB.rados_read_op_operate(op, io, name, 0)


WRITING = [["lock", "lock"], ["numops", "add"], ["hello", "record_hello"], ["version", "set"]]
CALLBACK = c.CFUNCTYPE(None, PTR, U64, U64, U64, PTR, SIZE)
ERROR = c.CFUNCTYPE(None, PTR, U64, c.c_int)
ON_NOTIFY, ON_ERROR = CALLBACK(lambda *_: None), ERROR(lambda *_: None)


def ask(place, what, snap, version):
    """The errno of one request, or 0."""
    io, name = place.io, place.name
    shim = {"821f": "flush", "8221": "try_flush", "8220": "evict", "120a": "list_snaps", "1209": "list_watchers", "1220": "cmpext",
            "1213": "omap_header", "2216": "omap_set_header", "1205": "sparse_read"}
    if what in shim:
        code = getattr(SO, "shim_" + shim[what])(io, name)
    elif what == "2224":
        code = LIB.rados_cache_pin(io, name)
    elif what == "2225":
        code = LIB.rados_cache_unpin(io, name)
    elif what == "1208":
        code = SO.shim_assert_version(io, name, U64(version))
    elif what == "220e":
        code = SO.shim_rollback(io, name, U64(snap))
    elif what == "222d":
        source = place.context("ns2")
        code = SO.shim_copy_from(io, name, source, b"obj")
        LIB.rados_ioctx_destroy(source)
    elif what == "220f":
        cookie = U64()
        code = LIB.rados_watch2(io, name, c.byref(cookie), ON_NOTIFY, ON_ERROR, None)
        if code == 0:
            LIB.rados_unwatch2(io, cookie)
    elif what == "1206":
        out, size = PTR(), SIZE()
        code = LIB.rados_notify2(io, name, b"x", c.c_int(1), U64(3000), c.byref(out), c.byref(size))
    elif what == "1505":
        lister, entry = PTR(), c.c_char_p()
        code = LIB.rados_nobjects_list_open(io, c.byref(lister))
        while code == 0:
            code = LIB.rados_nobjects_list_next(lister, c.byref(entry), None, None)
        if lister:
            LIB.rados_nobjects_list_close(lister)
        code = 0 if code == -2 else code
    elif what == "1301":
        code = LIB.rados_getxattr(io, name, b"attr", c.create_string_buffer(64), SIZE(64))
    else:
        code = many(place, what.split(" "))
    return min(code, 0)


def prepare(place):
    """The object as each request finds it."""
    op, (keys, key_sizes), (vals, val_sizes) = PTR(LIB.rados_create_write_op()), words(b"key"), words(b"value")
    LIB.rados_write_op_write_full(op, b"abcdefgh", SIZE(8))
    LIB.rados_write_op_setxattr(op, b"attr", b"value", SIZE(5))
    LIB.rados_write_op_omap_set2(op, keys, vals, key_sizes, val_sizes, SIZE(1))
    LIB.rados_remove(place.io, place.name)
    code = LIB.rados_write_op_operate2(op, place.io, place.name, None, 0)
    assert code == 0, (place.name, code)
    LIB.rados_get_last_version.restype = U64
    version = LIB.rados_get_last_version(place.io)
    LIB.rados_release_write_op(op)
    return version


def requests():
    """Pool, namespace, object, locator and words of each request."""
    for what in LONG:
        yield "a", "", "obj", "", what
    for pool, nspace, name, locator in PLACES:
        for what in SHORT:
            if locator and what == "1505":
                continue
            yield pool, nspace, name, locator, what
    yield "a", ALL_NAMESPACES, "", "", "1505"
    yield "b", ALL_NAMESPACES, "", "", "1505"


def connect_c(cluster, name):
    """A handle of the C library."""
    out = PTR()
    assert LIB.rados_create(c.byref(out), name.encode()) == 0
    assert LIB.rados_conf_read_file(out, cluster.conf.encode()) == 0
    for option, value in ((b"rados_osd_op_timeout", b"20"), (b"client_mount_timeout", b"30")):
        LIB.rados_conf_set(out, option, value)
    code = LIB.rados_connect(out)
    assert code == 0, f"{name}: {code}"
    return out.value


def verdicts(cluster, admin, out):
    every = list(requests())
    place = Place(admin, "a", "", "obj")
    source = Place(admin, "a", "ns2", "obj")
    prepare(source)  # of copy-from2
    source.close()
    snap = U64()
    assert LIB.rados_ioctx_selfmanaged_snap_create(place.io, c.byref(snap)) == 0
    columns = {}
    for name, _ in KEYS:
        client = admin if name == "all" else connect_c(cluster, name)
        column = []
        for pool, nspace, obj, locator, what in every:
            owner, version = Place(admin, pool, nspace, obj or "x", locator), 0
            if nspace != ALL_NAMESPACES:
                version = prepare(owner)
            other = Place(client, pool, nspace, obj or "x", locator)
            column.append(ask(other, what, snap.value, version))
            owner.close()
            other.close()
        code = LIB.rados_osd_command(PTR(client), c.c_int(0), words(b'{"prefix": "version"}')[0], SIZE(1), b"", SIZE(0),
                                     c.byref(c.c_char_p()), c.byref(SIZE()), c.byref(c.c_char_p()), c.byref(SIZE()))
        made = U64()
        place_of = Place(client, "a", "", "obj")
        snapped = LIB.rados_ioctx_selfmanaged_snap_create(place_of.io, c.byref(made))
        place_of.close()
        columns[name] = column + [code, snapped]
        if client != admin:
            LIB.rados_shutdown(PTR(client))
        print(f"{name}: {sum(code == EPERM for code in column)} of {len(column)} refused", flush=True)
    with open(f"{out}/verdicts.tsv", "w") as table:
        table.write("# What a real OSD (16.2.15) answers to each request of each key; made by make_table.py. Keys:\n")
        for name, text in KEYS:
            table.write(f"key\t{name}\t{text if text is not None else '-'}\n")
        table.write("# Of pool a: myapp role=main; of b: myapp role=second, other. Class numops is not on the list of classes for x.\n")
        table.write("# pool, namespace (@ is all), object, locator, operations; a letter for each key: `.` is allowed (answered as to the\n")
        table.write("# key `all`), `E` EPERM, `?` another error. The last column is the answer to `all`.\n")
        rows = every + [("-", "", "", "", "tell"), ("-", "", "", "", "snap-create")]
        for n, (pool, nspace, obj, locator, what) in enumerate(rows):
            codes = [columns[name][n] for name, _ in KEYS]
            letter = lambda code: "." if code == codes[0] else "E" if code == EPERM else "?"
            if codes[0] == EPERM:
                letter = lambda code: "E" if code == EPERM else "?"
            shown = [letter(code) for code in codes]
            odd = {code for code, sign in zip(codes, shown) if sign == "?"}
            nspace = "@" if nspace == ALL_NAMESPACES else nspace
            table.write("\t".join(["row", pool, nspace, obj, locator, what, "".join(shown), str(codes[0])] + [str(sorted(odd))] * bool(odd)) + "\n")


def all_methods():
    """Class and method of everything that Carmine has."""
    for folder, _, files in sorted(os.walk(CLASSES)):
        for file in sorted(files):
            cls = "rbd" if folder.endswith("rbd") else file[:-3]
            if cls in ("mod", "handle", "tests", "as_ceph"):
                continue
            text = open(f"{folder}/{file}").read()
            for method in re.findall(r'\b(?:read|write|blind)\(\s*"(\w+)"', text):
                yield cls, method


def methods(cluster, admin, out):
    """The flags of each method: a key with only class-read is refused what writes, and the other way round."""
    clients = [connect_c(cluster, name) for name in ("class_r", "class_w")]
    with open(f"{out}/methods.tsv", "w") as table:
        table.write("# class, method, and its flags in a real OSD (16.2.15); made by make_table.py\n")
        for cls, method in sorted(set(all_methods())):
            codes = []
            for client in clients + [admin]:
                place = Place(client, "b" if cls == "numops" else "a", "", "no_object")
                codes.append(min(LIB.rados_exec(place.io, place.name, cls.encode(), method.encode(), b"", SIZE(0),
                                                c.create_string_buffer(4096), SIZE(4096)), 0))
                place.close()
            writes, reads = codes[0] == EPERM, codes[1] == EPERM
            note = "" if codes[2] != EPERM else "\tunclear"
            if codes[2] == -95:
                flags = "none"
            else:
                flags = "r" * reads + "w" * writes
            table.write(f"{cls}\t{method}\t{flags}{note}\n")
    for client in clients:
        LIB.rados_shutdown(PTR(client))


def texts(cluster, admin, out):
    """Which texts the monitor takes; it has the parsers of both."""
    cluster.command(prefix="auth get-or-create", entity="client.probe", caps=["mon", "allow r"])
    with open(f"{out}/texts.tsv", "w") as table:
        table.write("# Which caps a real Ceph (16.2.15) can parse, as JSON strings; made by make_table.py\n")
        for kind, all_texts in (("osd", TEXTS), ("mon", MON_TEXTS)):
            for text in all_texts:
                caps = ["mon", "allow r", "osd", text] if kind == "osd" else ["mon", text]
                code, _, why = cluster.answer(prefix="auth caps", entity="client.probe", caps=caps)
                table.write(f"{kind}\t{'yes' if code == 0 else 'no' if code == -22 else code}\t{json.dumps(text)}\n")


def mon_verdicts(cluster, out):
    """Which commands the monitor lets each key execute: EACCES, or another answer."""
    known = json.loads(cluster.command(prefix="get_command_descriptions"))
    prefix_of = lambda sig: " ".join(word for word in sig if isinstance(word, str))
    known = {prefix_of(entry["sig"]): (entry["module"], entry["perm"]) for entry in known.values()}
    for name, text in MON_KEYS:
        cluster.command(prefix="auth get-or-create", entity=f"client.mon_{name}", caps=["mon", text])
        with open(f"{cluster.folder}/keyring", "a") as file:
            key = cluster.command(prefix="auth print-key", entity=f"client.mon_{name}").decode()
            file.write(f"[client.mon_{name}]\nkey = {key}\n")
    letters = ["" for _ in MON_COMMANDS]
    for name, _ in MON_KEYS:
        client = cluster.connect(f"mon_{name}")
        for n, words in enumerate(MON_COMMANDS):
            asked = json.dumps(words).replace("ENTITY", f"client.mon_{name}")
            code, _, why = client.mon_command(asked, b"", 20)
            letters[n] += "E" if code == -13 else "."
        client.shutdown()
        print(f"mon_{name}: {sum(row[-1] == 'E' for row in letters)} of {len(letters)} refused", flush=True)
    with open(f"{out}/mon_verdicts.tsv", "w") as table:
        table.write("# Which commands a real monitor (16.2.15) lets each key execute; made by make_table.py. Keys:\n")
        for name, text in MON_KEYS:
            table.write(f"key\tclient.mon_{name}\t{text}\n")
        table.write("# service, mode, command, arguments (ENTITY is the key's name); a letter for each key: `.` is allowed, `E` EACCES.\n")
        for words, row in zip(MON_COMMANDS, letters):
            words = dict(words)
            prefix = words.pop("prefix")
            service, mode = known[prefix]
            args = " ".join(f"{key}={value if isinstance(value, str) else value[0]}" for key, value in words.items())
            table.write("\t".join(["row", service, mode, prefix, args, row]) + "\n")


def main():
    global SO
    inside()
    out = os.path.abspath(sys.argv[-1])
    folder = tempfile.mkdtemp(prefix="caps-table.", dir="/tmp")
    with open(f"{folder}/shim.cc", "w") as file:
        file.write(SHIM)
    subprocess.check_call(["g++", "-shared", "-fPIC", "-O0", "-o", f"{folder}/shim.so", f"{folder}/shim.cc", "-lrados"])
    SO = c.CDLL(f"{folder}/shim.so")
    cluster = None
    try:
        cluster = Cluster.__new__(Cluster)
        cluster.children = []
        cluster.__init__(folder)
        for name, text in KEYS:
            if name == "all" or name in BAD:
                continue
            caps = ["mon", "allow r"] + (["osd", text] if text is not None else [])
            cluster.command(prefix="auth get-or-create", entity=f"client.{name}", caps=caps)
        # Without the caps: not every text can be in a keyring.
        keyring = cluster.command(prefix="auth export").decode()
        with open(f"{folder}/keyring", "w") as file:
            file.write("\n".join(re.findall(r"^\[.*\]$|^\s*key = .*$", keyring, re.M)) + "\n")
        admin = connect_c(cluster, "admin")
        verdicts(cluster, admin, out)
        methods(cluster, admin, out)
        texts(cluster, admin, out)
        mon_verdicts(cluster, out)
    finally:
        if cluster:
            cluster.stop()
        if "--keep" in sys.argv:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


main()
