use proptest::prelude::*;

use super::*;

const TABLE: &[u8] = b"\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
22 21 0:21 / /proc rw,nosuid - proc proc rw\n\
30 21 254:0 /srv/a\\040b /mnt/disks/a\\040b\\134\\011\\012 rw,noexec master:7 propagate_from:2 - ext4 /dev/vda rw,emergency_ro\n\
31 21 8:16 / /mnt/disks/vol1 rw,nosuid,nodev shared:3 master:2 unbindable - xfs /dev/sdb rw\n\
32 31 0:40 / /mnt/disks/vol1 ro - tmpfs none rw\n\
33 21 0:4 mnt:[4026531840] /run/ns rw - nsfs nsfs rw\n\
34 21 0:41 / /mnt/disks2 rw - tmpfs  rw\n\
garbage\n\
35 21 8:x / /bad rw - ext4 /dev/x rw\n\
36 21 8:32 / /cut rw shared:1\n\
37 21 0:42 / /mnt/\xff rw - tmpfs \xfe rw\n";

#[test]
fn fields_are_decoded() {
    let table = MountTable::parse(TABLE);
    assert_eq!((table.mounts().len(), table.malformed()), (8, 3));
    let odd = table.by_id(30).unwrap();
    assert_eq!(odd.root, Path::new("/srv/a b"));
    assert_eq!(odd.point, Path::new("/mnt/disks/a b\\\t\n"));
    assert_eq!((odd.shared, odd.master), (None, Some(7)));
    assert!(odd.is_read_only(), "emergency_ro");
    let disk = table.by_id(31).unwrap();
    assert_eq!((disk.shared, disk.master), (Some(3), Some(2)));
    assert_eq!(disk.options, ["rw", "nosuid", "nodev"]);
    assert_eq!(
        (disk.fs_type.as_str(), disk.source.as_os_str()),
        ("xfs", OsStr::new("/dev/sdb"))
    );
    let raw = table.by_id(37).unwrap();
    assert_eq!(raw.point.as_os_str().as_bytes(), b"/mnt/\xff");
    assert_eq!(raw.source.as_bytes(), b"\xfe");
    assert_eq!(table.by_id(34).unwrap().source, "");
}

#[test]
fn lookups_see_the_top_of_a_stack() {
    let table = MountTable::parse(TABLE);
    assert_eq!(table.at(Path::new("/mnt/disks/vol1")).unwrap().id, 32);
    assert_eq!(table.at(Path::new("/mnt/disks")), None);
    assert_eq!(
        table.holding(Path::new("/mnt/disks/vol1/x/y")).unwrap().id,
        32
    );
    assert_eq!(table.holding(Path::new("/mnt/disks/plain")).unwrap().id, 21);
    let below: Vec<u64> = table.below(Path::new("/mnt/disks")).map(|m| m.id).collect();
    assert_eq!(below, [30, 31, 32], "disks2 is not below disks");
    let of_root: Vec<u64> = table
        .of_device(DevNum {
            major: 254,
            minor: 0,
        })
        .map(|m| m.id)
        .collect();
    assert_eq!(of_root, [21, 30]);
}

#[test]
fn a_stack_is_read_by_parents_not_by_order() {
    let table = MountTable::parse(
        b"1 0 1:1 / / rw - a a rw\n3 2 1:3 / /m rw - a a rw\n2 1 1:2 / /m rw - a a rw\n",
    );
    assert_eq!(table.at(Path::new("/m")).unwrap().id, 3);
}

#[test]
fn places_are_told_inside_the_filesystem() {
    let table = MountTable::parse(TABLE);
    let bind = table.by_id(30).unwrap();
    assert_eq!(
        bind.inside(&bind.point.join("x")),
        Some("/srv/a b/x".into())
    );
    assert_eq!(bind.inside(Path::new("/mnt")), None);
    let disk = table.by_id(31).unwrap();
    let upon = table.upon(disk).unwrap();
    assert_eq!(
        upon,
        (
            DevNum {
                major: 254,
                minor: 0
            },
            "/mnt/disks/vol1".into()
        )
    );
    assert_eq!(
        table.upon(table.by_id(21).unwrap()),
        None,
        "its parent is out of sight"
    );
}

#[test]
fn own_table_holds_the_root() {
    let table = MountTable::read(OWN).unwrap();
    assert!(table.at(Path::new("/")).is_some());
    assert_eq!(table.malformed(), 0);
}

#[test]
fn ten_thousand_lines_are_read() {
    let text: String = (0..10_000)
        .map(|i| format!("{i} 1 0:{i} / /mnt/disks/volume-{i} rw,nosuid shared:{i} - tmpfs t rw\n"))
        .collect();
    assert_eq!(MountTable::parse(text.as_bytes()).mounts().len(), 10_000);
}

fn escape(raw: &[u8]) -> Vec<u8> {
    raw.iter()
        .flat_map(|b| match b {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{b:03o}").into_bytes(),
            _ => vec![*b],
        })
        .collect()
}

proptest! {
    #[test]
    fn escaping_is_undone(raw in proptest::collection::vec(1_u8.., 0..40)) {
        let decoded = unescape(&escape(&raw));
        prop_assert_eq!(decoded.as_bytes(), &raw);
    }

    #[test]
    fn any_point_survives(name in proptest::collection::vec(1_u8.., 1..40), id in 1_u64..) {
        let mut line = format!("{id} 1 8:1 / /").into_bytes();
        line.extend(escape(&name));
        line.extend_from_slice(b" rw - ext4 /dev/sda rw\n");
        let table = MountTable::parse(&line);
        let mount = table.by_id(id).unwrap();
        prop_assert_eq!(&mount.point.as_os_str().as_bytes()[1..], &name);
    }

    #[test]
    fn any_bytes_are_lines_or_counted(text in proptest::collection::vec(any::<u8>(), 0..400)) {
        let lines = text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).count();
        let table = MountTable::parse(&text);
        prop_assert_eq!(table.mounts().len() + table.malformed(), lines);
    }

    #[test]
    fn one_bad_line_hides_no_other(bad in "[^\n]{1,80}") {
        let mut text = bad.into_bytes();
        text.push(b'\n');
        text.extend_from_slice(TABLE);
        prop_assert!(MountTable::parse(&text).mounts().len() >= 8);
    }
}
