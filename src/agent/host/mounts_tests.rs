use futures::FutureExt as _;

use super::*;

const SAMPLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 7:1 / /var/lib/x rw - ext4 /dev/loop1 rw
41 40 7:2 / /var/lib/x rw,nosuid shared:9 master:3 - xfs /dev/loop2 rw
42 22 0:5 /loop3 /var/lib/block rw - devtmpfs udev rw
";

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
    let (come_back, held) = std::sync::mpsc::channel::<()>();
    let (begins, begun) = tokio::sync::oneshot::channel();
    let dead = path.clone();
    let first = tokio::spawn(async move {
        let hang = move |_: &Path| {
            let _ = begins.send(());
            let _ = held.recv();
            Ok(())
        };
        bounded(&dead, hang).await
    });
    begun.await.unwrap();
    tokio::time::advance(PATIENCE * 2).await;
    assert!(matches!(first.await.unwrap(), Err(MountError::Hangs { .. })));
    come_back
}

#[tokio::test(start_paused = true)]
async fn a_path_that_hangs_has_one_thread_and_no_more() {
    let path = HostPath::recorded("/a/file/system/that/is/dead");
    let come_back = hang_at(&path).await;

    // Answered at once: nothing was begun that could be waited for.
    let again = bounded(&path, |_| Ok(())).now_or_never();
    assert!(matches!(again, Some(Err(MountError::Hangs { .. }))), "{again:?}");
    let other = HostPath::recorded("/another/path");
    bounded(&other, |_| Ok(())).await.unwrap();
    drop(come_back);
    while bounded(&path, |_| Ok(())).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_hangs_is_looked_up_in_the_table_and_can_be_unmounted() {
    let table = fs::read_to_string(TABLE).unwrap();
    let mounted = Table::read(&table)
        .all()
        .iter()
        .map(|mount| mount.point.clone())
        .find(|p| p != Path::new("/") && !p.starts_with("/proc"));
    let mounted = HostPath::recorded(mounted.unwrap().to_str().unwrap());
    let missing = HostPath::recorded("/nothing/there/and/yet/dead");
    let _hanging = [hang_at(&mounted).await, hang_at(&missing).await];
    assert_eq!(look(&mounted).await.unwrap(), find(&table, mounted.as_path()));
    assert_eq!(look(&missing).await.unwrap(), None);
    if rustix::process::geteuid().is_root() {
        take_off(&missing, true).await.unwrap();
    }
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
