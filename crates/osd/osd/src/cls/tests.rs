//! Methods on an object in memory: their answers, byte by byte where clients depend on it.

use std::sync::Arc;

use carmine_types::{ObjectId, UTime, errno};
use carmine_wire::{Encoder, EntityAddr};
use proptest::prelude::*;

use super::{Caller, Done, Handle, find};
use crate::error::OpError;
use crate::pg::ObjectState;

/// An object and the time.
struct Object<'a>(ObjectState<'a>);

impl<'a> Object<'a> {
    fn new(oid: &'a Arc<ObjectId>) -> Object<'a> {
        Object(ObjectState::new(oid, None, UTime { sec: 1000, nsec: 0 }))
    }

    fn call_as(&mut self, gid: u64, class: &str, method: &str, input: &[u8]) -> Done {
        self.0.end_request();
        let found = find(class.as_bytes(), method.as_bytes()).expect("a method");
        if !found.writes {
            self.0.must_exist()?;
        }
        if found.data != super::Looks::Nothing {
            self.0.extra.get_or_insert_default().data.get_or_insert_default();
        }
        let caller = Caller { gid, addr: EntityAddr::default(), random: [1, 2] };
        (found.run)(&mut Handle::new(&mut self.0, caller), input)
    }

    fn rbd(&mut self, method: &str, input: &[u8]) -> Done {
        self.call_as(1, "rbd", method, input)
    }
}

fn oid() -> Arc<ObjectId> {
    Arc::new(ObjectId::head(1, b"", b"", b"o"))
}

fn text(values: &[&str]) -> Vec<u8> {
    Encoder::collect(|e| values.iter().for_each(|value| e.str(value)))
}

fn lock_op(kind: u8, cookie: &str, tag: &str, seconds: u32, flags: u8) -> Vec<u8> {
    Encoder::collect(|e| {
        e.envelope(1, 1, |e| {
            e.str("l");
            e.u8(kind);
            e.str(cookie);
            e.str(tag);
            e.str("");
            e.utime(UTime { sec: seconds, nsec: 0 });
            e.u8(flags);
        });
    })
}

fn claim(kind: u8, cookie: &str, tag: &str) -> Vec<u8> {
    Encoder::collect(|e| {
        e.envelope(1, 1, |e| {
            e.str("l");
            e.u8(kind);
            e.str(cookie);
            e.str(tag);
        });
    })
}

fn unlock_op(cookie: &str) -> Vec<u8> {
    Encoder::collect(|e| {
        e.envelope(1, 1, |e| {
            e.str("l");
            e.str(cookie);
        });
    })
}

#[test]
fn a_lock_is_held_by_one_or_shared_by_many() {
    let oid = oid();
    let mut o = Object::new(&oid);
    let busy = Err(OpError::new(errno::EBUSY));
    let missing = o.call_as(1, "lock", "assert_locked", &claim(1, "c", "t"));
    assert_eq!(missing, Err(OpError::new(errno::ENOENT)));
    assert_eq!(o.call_as(1, "lock", "lock", &lock_op(1, "c", "t", 0, 0)), Ok(vec![]));
    assert_eq!(o.call_as(1, "lock", "lock", &lock_op(1, "c", "t", 0, 0)), Err(OpError::new(errno::EEXIST)));
    assert_eq!(o.call_as(1, "lock", "lock", &lock_op(1, "c", "t", 0, 1)), Ok(vec![]), "it may be renewed");
    assert_eq!(o.call_as(2, "lock", "lock", &lock_op(1, "c", "t", 0, 0)), busy);
    assert_eq!(o.call_as(2, "lock", "lock", &lock_op(2, "c", "t", 0, 0)), busy);
    assert_eq!(o.call_as(1, "lock", "assert_locked", &claim(1, "c", "t")), Ok(vec![]));
    assert_eq!(o.call_as(1, "lock", "assert_locked", &claim(1, "c", "other")), busy);
    assert_eq!(o.call_as(2, "lock", "unlock", &unlock_op("c")), Err(OpError::new(errno::ENOENT)));
    assert_eq!(o.call_as(1, "lock", "unlock", &unlock_op("c")), Ok(vec![]));
    assert_eq!(o.call_as(1, "lock", "lock", &lock_op(2, "c", "t", 5, 0)), Ok(vec![]));
    assert_eq!(o.call_as(2, "lock", "lock", &lock_op(2, "c", "u", 0, 0)), busy, "another tag");
    assert_eq!(o.call_as(2, "lock", "lock", &lock_op(2, "c", "t", 0, 0)), Ok(vec![]));
    assert_eq!(o.call_as(3, "lock", "lock", &lock_op(1, "c", "t", 0, 0)), busy);
    assert_eq!(
        o.call_as(3, "lock", "lock", &lock_op(2, "c", "t", 0, 2)),
        Err(OpError::new(errno::ENOENT)),
        "must renew"
    );
    o.0.mtime.sec += 5;
    assert_eq!(o.call_as(1, "lock", "assert_locked", &claim(2, "c", "t")), busy, "its time is over");
    assert_eq!(o.call_as(1, "lock", "lock", &lock_op(9, "c", "t", 0, 0)), Err(OpError::new(errno::EINVAL)));
    assert_eq!(o.call_as(1, "lock", "lock", b"short"), Err(OpError::new(errno::EINVAL)));
}

#[test]
fn nobody_holds_a_lock_that_was_never_taken() {
    let oid = oid();
    let mut o = Object::new(&oid);
    let name = Encoder::collect(|e| e.envelope(1, 1, |e| e.str("l")));
    assert_eq!(o.call_as(1, "lock", "get_info", &name), Err(OpError::new(errno::ENOENT)));
    o.0.touch();
    let info = o.call_as(1, "lock", "get_info", &name).unwrap();
    assert_eq!(info, [1, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn an_ephemeral_lock_takes_its_object_along() {
    let oid = oid();
    let mut o = Object::new(&oid);
    o.call_as(1, "lock", "lock", &lock_op(3, "c", "", 0, 0)).unwrap();
    assert!(o.0.must_exist().is_ok());
    o.call_as(1, "lock", "unlock", &unlock_op("c")).unwrap();
    assert!(o.0.must_exist().is_err());
}

#[test]
fn names_and_ids_of_images_belong_together() {
    let oid = oid();
    let mut o = Object::new(&oid);
    assert_eq!(o.rbd("dir_add_image", &text(&["a", "1f"])), Ok(vec![]));
    assert_eq!(o.rbd("dir_add_image", &text(&["a", "2f"])), Err(OpError::new(errno::EEXIST)));
    assert_eq!(o.rbd("dir_add_image", &text(&["b", "1f"])), Err(OpError::new(errno::EBADF)));
    assert_eq!(o.rbd("dir_add_image", &text(&["b", "2f"])), Ok(vec![]));
    assert_eq!(o.rbd("dir_add_image", &text(&["c", "no id"])), Err(OpError::new(errno::EINVAL)));
    assert_eq!(o.rbd("dir_get_id", &text(&["b"])), Ok(text(&["2f"])));
    assert_eq!(o.rbd("dir_get_name", &text(&["1f"])), Ok(text(&["a"])));
    assert_eq!(o.rbd("dir_rename_image", &text(&["a", "b", "1f"])), Err(OpError::new(errno::EEXIST)));
    assert_eq!(o.rbd("dir_rename_image", &text(&["a", "", "1f"])), Err(OpError::new(errno::EINVAL)));
    assert_eq!(o.rbd("dir_rename_image", &text(&["a", "z", "1f"])), Ok(vec![]));
    let from = |after: &str| [text(&[after]), 64u64.to_le_bytes().to_vec()].concat();
    let all = [vec![2, 0, 0, 0], text(&["b", "2f", "z", "1f"])].concat();
    assert_eq!(o.rbd("dir_list", &from("")), Ok(all));
    assert_eq!(o.rbd("dir_list", &from("b")), Ok([vec![1, 0, 0, 0], text(&["z", "1f"])].concat()));
    assert_eq!(o.rbd("dir_remove_image", &text(&["z", "2f"])), Err(OpError::new(errno::ESTALE)));
    assert_eq!(o.rbd("dir_remove_image", &text(&["z", "1f"])), Ok(vec![]));
    assert_eq!(o.rbd("dir_get_id", &text(&["z"])), Err(OpError::new(errno::ENOENT)));
}

#[test]
fn a_header_says_what_it_was_made_with() {
    let oid = oid();
    let mut o = Object::new(&oid);
    let head = u64::MAX - 1;
    let create = |features: u64| {
        Encoder::collect(|e| {
            e.u64(8 << 20);
            e.u8(22);
            e.u64(features);
            e.str("rbd_data.1f");
            e.i64(-1);
        })
    };
    assert_eq!(o.rbd("create", &create(1 << 40)), Err(OpError::new(errno::ENOSYS)));
    assert_eq!(o.rbd("create", &create(0x3d)), Ok(vec![]));
    assert_eq!(o.rbd("create", &create(0x3d)), Err(OpError::new(errno::EEXIST)));
    let size = [vec![22], (8u64 << 20).to_le_bytes().to_vec()].concat();
    assert_eq!(o.rbd("get_size", &head.to_le_bytes()), Ok(size));
    assert_eq!(o.rbd("get_size", &5u64.to_le_bytes()), Err(OpError::new(errno::ENOENT)));
    let features = |read_only: u8, needed: u8| {
        let input = [head.to_le_bytes().to_vec(), vec![read_only]].concat();
        (input, Ok([0x3d, 0, 0, 0, 0, 0, 0, 0, needed, 0, 0, 0, 0, 0, 0, 0].to_vec()))
    };
    for (input, output) in [features(0, 0x3d), features(1, 1)] {
        assert_eq!(o.rbd("get_features", &input), output);
    }
    assert_eq!(o.rbd("get_object_prefix", b""), Ok(text(&["rbd_data.1f"])));
    assert_eq!(o.rbd("get_data_pool", b""), Ok(vec![0xff; 8]));
    assert_eq!(o.rbd("get_stripe_unit_count", b""), Err(OpError::new(errno::ENOEXEC)));
    assert_eq!(o.rbd("get_snapcontext", b""), Ok(vec![0; 12]));
    let bits = |bits: u64, mask: u64| [bits.to_le_bytes(), mask.to_le_bytes()].concat();
    assert_eq!(o.rbd("set_flags", &bits(3, 1)), Ok(vec![]));
    assert_eq!(o.rbd("get_flags", &head.to_le_bytes()), Ok(1u64.to_le_bytes().to_vec()));
    assert_eq!(o.rbd("parent_get", b"").map(|parent| parent.len()), Ok(6 + 24));
}

/// The states that `object_map_load` returns.
fn states(o: &mut Object<'_>) -> Vec<u8> {
    let out = o.rbd("object_map_load", b"").unwrap();
    let len = u64::from_le_bytes(out[10..18].try_into().unwrap());
    assert_eq!(out[..10], [14, 0, 0, 0, 1, 1, 8, 0, 0, 0]);
    assert_eq!(out.len(), 18 + len.div_ceil(4) as usize + 4);
    (0..len).map(|at| out[18 + at as usize / 4] >> (6 - 2 * (at % 4)) & 3).collect()
}

fn resize(len: u64, state: u8) -> Vec<u8> {
    [len.to_le_bytes().to_vec(), vec![state]].concat()
}

fn update(from: u64, to: u64, state: u8, expected: Option<u8>) -> Vec<u8> {
    let expected = expected.map_or(vec![0], |expected| vec![1, expected]);
    [from.to_le_bytes().to_vec(), to.to_le_bytes().to_vec(), vec![state], expected].concat()
}

proptest! {
    #[test]
    fn an_object_map_is_a_list_of_states(
        updates in prop::collection::vec((0..40u64, 0..40u64, 0..4u8, prop::option::of(0..4u8)), 0..20),
        sizes in prop::collection::vec(0..40u64, 1..4),
    ) {
        let oid = oid();
        let mut o = Object::new(&oid);
        let mut model: Vec<u8> = Vec::new();
        for len in sizes {
            let cut = model.iter().skip(len as usize).any(|state| *state != 0);
            let expected = if cut { Err(OpError::new(errno::ESTALE)) } else { Ok(vec![]) };
            prop_assert_eq!(o.rbd("object_map_resize", &resize(len, 0)), expected);
            if !cut {
                model.resize(len as usize, 0);
            }
            for (from, to, state, wanted) in &updates {
                let done = o.rbd("object_map_update", &update(*from, *to, *state, *wanted));
                if from > to || *to > model.len() as u64 {
                    prop_assert_eq!(done, Err(OpError::new(errno::ERANGE)));
                    continue;
                }
                prop_assert_eq!(done, Ok(vec![]));
                for old in &mut model[*from as usize..*to as usize] {
                    if wanted.is_none_or(|wanted| wanted == *old || (wanted == 1 && *old == 3)) {
                        *old = *state;
                    }
                }
            }
            prop_assert_eq!(states(&mut o), model.clone());
        }
    }

    /// Whatever a client sends: an answer or an errno.
    #[test]
    fn any_input_is_answered(input: Vec<u8>, data: Vec<u8>, class in 0..2usize) {
        let oid = oid();
        for name in METHODS[class].1 {
            let mut o = Object::new(&oid);
            o.0.touch();
            o.0.extra.get_or_insert_default().data = Some(data.clone());
            let _ = o.call_as(1, METHODS[class].0, name, &input);
        }
    }
}

/// Many snapshots do not fit in one page of the omap.
#[test]
fn an_image_has_many_snapshots() {
    let oid = oid();
    let mut o = Object::new(&oid);
    let create = Encoder::collect(|e| {
        e.u64(8 << 20);
        e.u8(22);
        e.u64(1);
        e.str("rbd_data.1f");
        e.i64(-1);
    });
    o.rbd("create", &create).unwrap();
    let add = |name: u64, id: u64| [text(&[&name.to_string()]), id.to_le_bytes().to_vec()].concat();
    for n in 1..=1500 {
        assert_eq!(o.rbd("snapshot_add", &add(n, n)), Ok(vec![]));
    }
    assert_eq!(o.rbd("snapshot_add", &add(1, 1501)), Err(OpError::new(errno::EEXIST)));
    let context = o.rbd("get_snapcontext", b"").unwrap();
    assert_eq!(context[8..20], [1500u32.to_le_bytes().to_vec(), 1500u64.to_le_bytes().to_vec()].concat());
    assert_eq!(o.rbd("snapshot_remove", &7u64.to_le_bytes()), Ok(vec![]));
    assert_eq!(o.rbd("snapshot_remove", &7u64.to_le_bytes()), Err(OpError::new(errno::ENOENT)));
    assert_eq!(o.rbd("get_snapcontext", b"").unwrap().len(), 8 + 4 + 1499 * 8);
}

/// Methods with an input.
const METHODS: [(&str, &[&str]); 2] = [
    ("lock", &["lock", "unlock", "break_lock", "set_cookie", "assert_locked", "get_info", "list_locks"]),
    (
        "rbd",
        &[
            "create",
            "get_size",
            "set_size",
            "get_features",
            "set_features",
            "get_flags",
            "set_flags",
            "set_stripe_unit_count",
            "dir_list",
            "dir_get_id",
            "dir_add_image",
            "dir_remove_image",
            "dir_rename_image",
            "dir_state_set",
            "get_id",
            "set_id",
            "metadata_list",
            "metadata_set",
            "object_map_load",
            "object_map_save",
            "object_map_resize",
            "object_map_update",
            "trash_add",
            "trash_list",
            "trash_state_set",
            "namespace_add",
            "namespace_list",
            "snapshot_add",
            "snapshot_remove",
            "snapshot_rename",
            "snapshot_trash_add",
            "snapshot_get",
            "snapshot_set_limit",
            "set_protection_status",
            "parent_overlap_get",
            "parent_attach",
            "get_parent",
            "set_parent",
            "child_attach",
            "child_detach",
            "children_list",
            "add_child",
            "remove_child",
            "get_children",
            "object_map_snap_remove",
            "sparse_copyup",
            "sparsify",
            "assert_snapc_seq",
        ],
    ),
];

#[test]
fn only_methods_that_look_at_mirroring_find_nothing() {
    let looks = |method: &str| super::looks_at_mirroring(b"rbd", method.as_bytes());
    for method in [
        "mirror_peer_list",
        "mirror_image_status_get_summary",
        "mirror_image_instance_list",
        "mirror_mode_get",
    ] {
        assert!(looks(method), "{method}");
    }
    for method in
        ["mirror_uuid_set", "mirror_mode_set", "mirror_peer_add", "mirror_image_set", "group_dir_list"]
    {
        assert!(!looks(method), "{method}");
    }
    assert!(!super::looks_at_mirroring(b"lock", b"mirror_mode_get"));
}
