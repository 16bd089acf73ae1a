use super::*;

const SAMPLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
36 22 98:0 /mnt1 /mnt/with\\040space rw,noatime master:1 - ext3 /dev/root rw
40 22 7:1 / /x rw - ext4 /dev/loop1 rw
41 40 7:2 / /x rw,nosuid shared:9 master:3 - xfs /dev/loop2 rw
50 51 7:1 / /tucked ro - ext4 /dev/loop1 rw
51 22 7:1 / /tucked rw - ext4 /dev/loop1 rw
60 22 7:3 / /t rw - ext4 /dev/loop3 rw
61 60 7:4 / /t/sub rw - ext4 /dev/loop4 rw
62 60 7:5 / /t ro - ext4 /dev/loop3 rw
63 62 7:6 / /t/sub rw - ext4 /dev/loop6 rw
64 63 7:7 / /t/sub rw - ext4 /dev/loop7 rw
65 64 7:8 / /t/sub/deeper rw - ext4 /dev/loop8 rw
66 22 7:9 / /t-other rw - ext4 /dev/loop9 rw
garbage
";

fn devices(mounts: &[&Mount]) -> Vec<String> {
    mounts.iter().map(|mount| mount.device.clone()).collect()
}

#[test]
fn the_last_one_at_a_path_is_the_one_that_is_seen() {
    let table = Table::read(SAMPLE);
    assert_eq!(devices(&table.at(Path::new("/x"))), ["7:1", "7:2"]);
    let tucked: Vec<u64> = table.at(Path::new("/tucked")).iter().map(|mount| mount.id).collect();
    assert_eq!(tucked, [51, 50], "whatever their order in the table");
    assert!(table.at(Path::new("/x/y")).is_empty() && table.at(Path::new("/nowhere")).is_empty());
}

#[test]
fn a_file_system_takes_writes_or_not_however_it_is_mounted() {
    let of = |options: &str| {
        let table = Table::read(&format!("1 0 7:1 / /x ro,noatime - ext4 /dev/loop1 {options}\n"));
        table.all()[0].writes
    };
    assert_eq!(of("rw,errors=remount-ro"), Writes::Taken);
    assert_eq!(of(""), Writes::Taken);
    assert_eq!((of("ro,seclabel"), of("rw,emergency_ro")), (Writes::Refused, Writes::Refused));
    assert_eq!(of("rw,shutdown"), Writes::ShutDown);
}

#[test]
fn what_is_hidden_is_not_seen_from_above() {
    let table = Table::read(SAMPLE);
    assert_eq!(devices(&table.seen_from(Path::new("/t"))), ["7:5", "7:7", "7:8"]);
    assert_eq!(devices(&table.seen_from(Path::new("/nowhere"))), [""; 0]);
}

#[test]
fn a_place_is_the_same_by_whatever_way_it_is_reached() {
    let of = |text: &str, path: &str| Table::read(text).place_at(Path::new(path));
    let node = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";
    let mounted = node.to_owned() + "5 1 7:1 / /k/a rw - ext4 /d rw\n6 5 7:1 / /k/a ro - ext4 /d rw\n";
    let pod = "2 0 0:9 / / rw - overlay o rw\n3 2 8:1 /k /host rw - ext4 /dev/sda1 rw\n\
               4 3 7:1 / /host/a rw - ext4 /dev/loop1 rw\n7 2 7:1 / /k/a rw - ext4 /dev/loop1 rw\n";
    let place = of(node, "/k/a").unwrap();
    assert_eq!(place, Place { device: "8:1".into(), path: "/k/a".into() });
    for (table, path) in [(mounted.as_str(), "/k/a"), (pod, "/host/a")] {
        assert_eq!(of(table, path).as_ref(), Some(&place), "{path}");
    }
    let copies = Table::read(pod);
    let places: Vec<_> = copies.all().iter().map(|mount| copies.place_of(mount)).collect();
    assert_eq!(places[2], Some(place.clone()));
    assert!(places[0].is_none(), "out of sight");
    assert_ne!(places[3], Some(place), "of that name in a container");
}

/// As the index answers, by looks at every mount.
fn found_by_looking(table: &Table, path: &Path) -> Vec<u64> {
    let all = table.all();
    let here = || all.iter().filter(|mount| mount.point == path);
    let bottom = here().rfind(|mount| here().all(|other| other.id != mount.parent));
    let over = |mount: &&Mount| {
        let (id, point) = (mount.id, mount.point.clone());
        all.iter().find(|m| m.parent == id && m.point == point && m.id != id)
    };
    std::iter::successors(bottom, over).take(all.len()).map(|mount| mount.id).collect()
}

/// Whether mounts at one place lie on each other in a circle.
fn goes_round(table: &Table) -> bool {
    let numbers: std::collections::HashSet<u64> = table.all().iter().map(|mount| mount.id).collect();
    let under = |mount: &Mount| {
        let (parent, point) = (mount.parent, &mount.point);
        table.all().iter().find(|m| m.id == parent && m.point == *point)
    };
    let ends = |mount| (0..table.all().len()).try_fold(mount, |mount, _| under(mount)).is_none();
    numbers.len() < table.all().len() || !table.all().iter().all(ends)
}

proptest::proptest! {
    #[test]
    fn what_is_at_a_path_is_found_as_by_looking_at_every_mount(
        mounts in proptest::collection::vec((1..8_u64, 0..8_u64, "(/[ab]){1,2}"), 0..9),
    ) {
        let line = |(id, parent, point): &(u64, u64, String)| format!("{id} {parent} 7:1 / {point} rw - ext4 /d rw");
        let text = mounts.iter().map(line).collect::<Vec<_>>().join("\n");
        let table = Table::read(&text);
        for path in ["/a", "/b", "/a/a", "/a/b", "/b/a", "/b/b/", "/"].map(Path::new) {
            let found: Vec<u64> = table.at(path).iter().map(|mount| mount.id).collect();
            proptest::prop_assert_eq!(&found, &found_by_looking(&table, path), "{}", path.display());
            let those = Table::read_at(&text, path);
            proptest::prop_assert!(those.all().iter().all(|mount| mount.point == path));
            // The kernel gives each mount a number of its own, and there no table goes round.
            if !goes_round(&table) {
                let alone: Vec<u64> = those.at(path).iter().map(|mount| mount.id).collect();
                proptest::prop_assert_eq!(alone, found, "{}", path.display());
            }
        }
        for mount in table.all() {
            let under = table.all().iter().find(|m| m.id == mount.parent && m.id != mount.id);
            let is_elsewhere = under.is_some_and(|under| under.point != mount.point);
            let place = is_elsewhere.then(|| under.and_then(|under| under.place_below(&mount.point)));
            proptest::prop_assert!(place.is_none_or(|place| table.place_of(mount) == place));
        }
    }
}

#[test]
fn flags_are_whole_words() {
    let table = Table::read(SAMPLE);
    let mount = table.at(Path::new("/x")).pop().unwrap();
    assert!(mount.has("nosuid") && mount.has("rw") && !mount.has("ro") && !mount.has("suid"));
}

#[test]
fn a_remount_can_say_the_flags_again() {
    let table = Table::read("36 35 7:2 / /mnt ro,nosuid,relatime shared:1 - ext4 /dev/loop2 ro");
    assert_eq!(table.all()[0].flags(), MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::RELATIME);
}

#[test]
fn what_is_asked_for_alone_is_read() {
    let ids = |table: &Table| table.all().iter().map(|mount| mount.id).collect::<Vec<_>>();
    assert_eq!(ids(&Table::read_at(SAMPLE, Path::new("/mnt/with space"))), [36]);
    assert_eq!(ids(&Table::read_at(SAMPLE, Path::new("/t/sub"))), [61, 63, 64]);
    let of_device = Table::read_those(SAMPLE, |device, root, _| device == "7:1" && root == "/");
    assert_eq!(ids(&of_device), [40, 50, 51]);
}

#[test]
fn escapes_are_read() {
    let table = Table::read(SAMPLE);
    let found = table.at(Path::new("/mnt/with space"));
    assert_eq!((devices(&found), found[0].root.as_str()), (vec!["98:0".to_owned()], "/mnt1"));
    assert_eq!(unescaped("a\\134b\\011c\\9"), "a\\b\tc\\9");
}
