use super::*;
use crate::agent::host::bounded::tests::hang_at as hang_by;

const SAMPLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 7:1 / /var/lib/x rw - ext4 /dev/loop1 rw
41 40 7:2 / /var/lib/x rw,nosuid shared:9 master:3 - xfs /dev/loop2 rw
42 22 0:5 /loop3 /var/lib/block rw - devtmpfs udev rw
";

fn find(table: &str, path: &Path) -> Option<Device> {
    Table::read(table).at(path).pop().map(|mount| Device(mount.device.clone()))
}

#[test]
fn the_topmost_mount_at_a_path_counts() {
    assert_eq!(find(SAMPLE, Path::new("/var/lib/x")).unwrap().text(), "7:2");
}

#[test]
fn a_path_below_a_mount_is_no_mount() {
    assert_eq!(find(SAMPLE, Path::new("/var/lib/x/y")), None);
    assert_eq!(find(SAMPLE, Path::new("/var/lib")), None);
}

/// B12.
#[test]
fn a_device_number_that_was_given_again_is_another_device() {
    let sys = tempfile::tempdir().unwrap();
    let disk = sys.path().join("7:3");
    fs::create_dir(&disk).unwrap();
    fs::write(disk.join("diskseq"), "11\n").unwrap();
    let first = Device::raw(sys.path(), 7, 3);
    assert_eq!(first, Device::raw(sys.path(), 7, 3));
    fs::write(disk.join("diskseq"), "12\n").unwrap();
    assert_ne!(first, Device::raw(sys.path(), 7, 3));
    // A partition has the count of its disk.
    std::os::unix::fs::symlink("7:3/part", sys.path().join("259:1")).unwrap();
    fs::create_dir(disk.join("part")).unwrap();
    assert_eq!(Device::raw(sys.path(), 259, 1).text(), "259:1#12");
    assert_eq!(Device::raw(sys.path(), 8, 0).text(), "8:0", "an old kernel has no count");
}

#[tokio::test]
async fn the_kernel_says_what_is_a_mount() {
    let dir = tempfile::tempdir().unwrap();
    let plain = HostPath::recorded(dir.path().to_str().unwrap());
    assert_eq!(look(&plain).await.unwrap(), None);
    assert_eq!(look(&HostPath::recorded("/nowhere/at/all")).await.unwrap(), None);
    assert!(look(&HostPath::recorded("/proc")).await.unwrap().is_some());
}

/// Has a look at `path` hang, and be given up. It ends when what is returned is dropped.
pub(crate) async fn hang_at(path: &HostPath) -> std::sync::mpsc::Sender<()> {
    hang_by(&LOOKS, path.as_path()).await
}

/// A mount that is there and no part of /proc, for example of /sys or /dev.
fn some_mount(wanted: impl Fn(&Mount) -> bool) -> HostPath {
    let table = Table::read(&fs::read_to_string(TABLE).unwrap());
    let is_apart = |mount: &&Mount| mount.point != Path::new("/") && !mount.point.starts_with("/proc");
    let found = table.all().iter().filter(is_apart).find(|mount| wanted(mount)).unwrap();
    HostPath::recorded(found.point.to_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_hangs_is_looked_up_in_the_table_and_can_be_unmounted() {
    let mounted = some_mount(|_| true);
    let missing = HostPath::recorded("/nothing/there/and/yet/dead");
    let _hanging = [hang_at(&mounted).await, hang_at(&missing).await];
    assert_eq!(look(&mounted).await.unwrap(), look_in_table(mounted.as_path()).unwrap());
    assert_eq!(look(&missing).await.unwrap(), None);
    if rustix::process::geteuid().is_root() {
        take_off(&missing, true).await.unwrap();
    }
}

/// Of some dead servers the volumes of all other drivers would be neither seen nor undone.
#[tokio::test(start_paused = true)]
async fn when_no_more_looks_may_hang_the_others_are_looked_at_in_other_ways() {
    static FULL: Bounded = Bounded::new(1);
    let _hanging = hang_by(&FULL, Path::new("/a/file/system/that/is/dead")).await;
    let refused = FULL.at(&HostPath::recorded("/another"), look_now).await;
    assert!(matches!(refused, Err(HostError::OthersHang(_))), "{refused:?}");

    let no_server = |mount: &Mount| IN_MEMORY.contains(&mount.kind.as_str());
    let by_table = some_mount(|m| !no_server(m) && !NUMBERED_APART.contains(&m.kind.as_str()));
    assert_eq!(look_by(&FULL, &by_table).await.unwrap(), look_in_table(by_table.as_path()).unwrap());
    let in_memory = some_mount(no_server);
    assert_eq!(look_by(&FULL, &in_memory).await.unwrap(), look_now(in_memory.as_path()).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let plain = HostPath::recorded(dir.path().to_str().unwrap());
    assert_eq!(look_by(&FULL, &plain).await.unwrap(), None);
}

#[tokio::test]
async fn a_forced_unmount_of_nothing_is_success() {
    let dir = tempfile::tempdir().unwrap();
    let missing = HostPath::recorded(dir.path().join("x").to_str().unwrap());
    // Without the right to unmount the kernel refuses before it looks.
    if rustix::process::geteuid().is_root() {
        take_off(&missing, true).await.unwrap();
    }
}
