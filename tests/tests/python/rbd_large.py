"""Images whose object maps have tens of megabytes: python3 rbd_large.py CONF POOL

Prints how long things took, and "ok". A real Ceph 16.2.15 creates them in 13 s and 26 s, and refuses 1,000 TiB (EINVAL).
"""
import sys, time
import rados, rbd

CONF, POOL = sys.argv[1:3]
TIB = 1 << 40
OBJECT = 4 << 20
FEATURES = rbd.RBD_FEATURE_LAYERING | rbd.RBD_FEATURE_EXCLUSIVE_LOCK | rbd.RBD_FEATURE_OBJECT_MAP | rbd.RBD_FEATURE_FAST_DIFF


def timed(what, work):
    begin = time.time()
    result = work()
    print("%s: %.0f ms" % (what, (time.time() - begin) * 1000), flush=True)
    return result


def objects(ioctx, image, places):
    """Whether the map says that there are these objects and no others."""
    _, states = ioctx.execute("rbd_object_map." + image.id(), "rbd", "object_map_load", b"", 100 << 20)
    wanted = bytearray((image.size() // OBJECT + 3) // 4)
    for place in places:
        at = place // OBJECT
        wanted[at // 4] |= 1 << (6 - 2 * (at % 4))
    # Between a header of 18 bytes and the checksums.
    return states[18:18 + len(wanted)] == bytes(wanted)


def main():
    cluster = rados.Rados(conffile=CONF, rados_id="admin")
    cluster.connect(timeout=60)
    ioctx = cluster.open_ioctx(POOL)
    for tib in (400, 960):
        name = "image-%d" % tib
        timed("create %s TiB" % tib, lambda: rbd.RBD().create(ioctx, name, tib * TIB, old_format=False, features=FEATURES))
        places = [n * (tib * TIB // 11 // OBJECT * OBJECT) for n in range(10)]
        with timed("open", lambda: rbd.Image(ioctx, name)) as image:
            for place in places:
                timed("first write of an object", lambda: image.write(b"x" * 4096, place))
                assert image.read(place, 4096) == b"x" * 4096
            assert image.flags() == 0, "the object map is trusted"
        with rbd.Image(ioctx, name) as image:
            # By the map, which is loaded again.
            assert timed("load the map", lambda: objects(ioctx, image, places))
            image.discard(places[3], OBJECT)
            assert objects(ioctx, image, places[:3] + places[4:])
    with rbd.Image(ioctx, "image-400") as image:
        timed("snapshot", lambda: image.create_snap("s"))
        image.write(b"y" * 4096, 7 * OBJECT)
        timed("resize to 500 TiB", lambda: image.resize(500 * TIB))
        image.write(b"z" * 4096, 499 * TIB)
        timed("remove the snapshot", lambda: image.remove_snap("s"))
        assert image.flags() == 0, "the object map is trusted"
        assert objects(ioctx, image, [n * (400 * TIB // 11 // OBJECT * OBJECT) for n in range(10) if n != 3] + [7 * OBJECT, 499 * TIB])
    try:
        rbd.RBD().create(ioctx, "too-large", 1000 * TIB, old_format=False, features=FEATURES)
        raise AssertionError("1,000 TiB were taken")
    except rbd.InvalidArgument:
        pass
    print("ok")


main()
