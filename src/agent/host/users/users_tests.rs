use super::super::mounts::disk;
use super::super::mounts::tests::hang_at;
use super::*;

const CLAIM: &str = "c-1";

/// A namespace with these mounts: what part of the file system `8:1`, or of the one that is named, is mounted where. The
/// root is the node's, or the container's own.
fn space(namespace: &str, mounts: &[(&str, &str)]) -> Space {
    let of_container = !["own", "node"].contains(&namespace);
    let mut all = vec![(if of_container { "0:9 /" } else { "9:1 /" }, "/ rw")];
    all.extend(mounts);
    let below = |at: &str, over: &str| Path::new(at).starts_with(over.split(' ').next().unwrap());
    let line = |(id, (part, at)): (usize, &(&str, &str))| {
        let (device, root) = part.split_once(' ').unwrap_or(("8:1", part));
        let under = all[..id].iter().rposition(|(_, over)| below(at, over)).map_or(1000, |under| under);
        format!("{id} {under} {device} {root} {at} - ext4 /dev/sda1 rw\n")
    };
    let table: String = all.iter().enumerate().map(line).collect();
    Space::new(namespace.into(), 7, table)
}

fn question() -> Question {
    let imprint = Imprint { device: "8:1".into(), root: "/vol".into(), source: None, disk: None, raw: false };
    let left = Left { path: "/k/claims/c-1/target".into(), imprint };
    let left = [(CLAIM.to_owned(), left)].into();
    Question {
        left,
        by_right: BTreeSet::new(),
        folders: ["/k/staging", "/k/targets", "/k/claims"].map(str::to_owned).into(),
        recorded: Recorded::new(|| ["/k/claims/c-2".to_owned()].into()),
        staged: false,
        unstaged: true,
        writers: false,
        kept_by_driver: Vec::new(),
        driver: None,
    }
}

/// `own` is the namespace of the agent and the driver.
fn tables(survey: impl Into<Vec<Space>>, node: &str) -> Tables {
    Tables { survey: Arc::new(survey.into()), own: vec!["own".into()], node: Some(node.into()) }
}

/// The places of what counts.
fn points(question: &Question, survey: impl Into<Vec<Space>>) -> Vec<String> {
    points_in(question, &tables(survey, "node"))
}

fn points_in(question: &Question, tables: &Tables) -> Vec<String> {
    let copies = question.copies(tables).unwrap_or_default();
    copies.into_iter().map(|copy| copy.mount.point.display().to_string()).collect()
}

#[test]
fn a_copy_counts_wherever_it_is_mounted() {
    let survey = [
        space("own", &[("/other", "/k/claims/c-2/target rw")]),
        space("container", &[("/vol", "/data rw"), ("/vol/sub", "/sub ro"), ("/vol2", "/no rw")]),
    ];
    assert_eq!(points(&question(), survey), ["/data", "/sub"]);
}

#[test]
fn what_is_mounted_by_right_is_no_copy() {
    let survey = [
        space("own", &[("/vol", "/k/staging/a-1 rw")]),
        space("container", &[("9:1 /", "/host rw"), ("/vol", "/host/k/staging/a-1 rw")]),
        space("other", &[("9:1 /k/staging", "/all rw"), ("/vol", "/all/a-1 rw")]),
    ];
    let staged = Question { by_right: ["/k/staging/a-1".to_owned()].into(), ..question() };
    assert!(points(&staged, survey).is_empty());
}

/// Whoever makes a Pod chooses where its containers have a volume.
#[test]
fn a_container_with_a_place_of_moors_name_is_a_user() {
    for at in ["/k/staging/a-1", "/x/a-1", "/c-2/data", "/k/claims/c-2/target"] {
        let container = || space("container", &[("/vol", &format!("{at} rw"))]);
        let by_right = ["/k/staging/a-1", "/k/claims/c-2/target"].map(str::to_owned).into();
        let asked = Question { by_right, ..question() };
        assert_eq!(points(&asked, [container()]), [at], "without moor's own mounts");
        let own = space("own", &[("/vol", "/k/staging/a-1 rw"), ("/vol", "/k/claims/c-2/target rw")]);
        assert_eq!(points(&asked, [own, container()]), [at]);
    }
}

#[test]
fn beside_readers_only_who_can_write_is_meant() {
    let survey = [
        space("own", &[("/vol", "/k/staging/a-1 rw"), ("/vol", "/k/claims/c-2/target ro")]),
        space("writer", &[("/vol", "/writes rw")]),
        space("reader", &[("/vol", "/reads ro,relatime")]),
    ];
    let by_right = ["/k/staging/a-1", "/k/claims/c-2/target"].map(str::to_owned).into();
    let beside_readers = Question { by_right, writers: true, ..question() };
    assert_eq!(points(&beside_readers, survey), ["/writes"]);
}

/// A driver that binds from a mount of its own, or the mount of somebody else whose volume is the same tree.
#[test]
fn where_others_have_the_same_nothing_can_be_told() {
    let survey = [space("own", &[("/vol", "/driver/keeps rw")]), space("container", &[("/vol", "/data rw")])];
    assert!(question().copies(&tables(survey, "nobody")).is_none());
}

/// A claim that was removed by hand, or a publish that a driver has gone on with after its claim was gone.
#[test]
fn what_no_record_speaks_of_in_moors_folders_excuses_nobody() {
    for of_driver in ["/k", "/host/k"] {
        let left_over = format!("{of_driver}/claims/c-0/target");
        let kubelet = ("9:1 /k", format!("{of_driver} rw"));
        let folder = ("0:40 /", format!("{of_driver}/targets rw"));
        let left_over_too = format!("{of_driver}/targets/c-0/target");
        let survey = [
            space(
                "own",
                &[
                    (kubelet.0, &kubelet.1),
                    (folder.0, &folder.1),
                    ("/vol", &format!("{left_over} rw")),
                    ("/vol", &format!("{left_over_too} rw")),
                ],
            ),
            space("own", &[("0:40 /", "/k/targets rw")]),
            space("container", &[("/vol", "/data rw")]),
        ];
        assert_eq!(points(&question(), survey), [&left_over, &left_over_too, "/data"]);
    }
    let others = [space("own", &[("/vol", "/k/claims/c-2/target rw")])];
    assert!(question().copies(&tables(others, "nobody")).is_none(), "a claim's of the same tree");
}

/// A driver that mounts on the node itself, as for several volumes at once, at a place that was seen in time.
#[test]
fn what_the_driver_keeps_on_the_node_is_no_user_and_hides_none() {
    let survey = [
        space("node", &[("/vol", "/driver/shares rw"), ("/vol", "/mnt rw")]),
        space("collector", &[("9:1 /", "/host ro"), ("/vol", "/host/driver/shares ro")]),
        space("container", &[("/vol", "/data rw")]),
    ];
    let told = Question { kept_by_driver: vec!["/driver/shares".to_owned()], ..question() };
    let tables = tables(survey, "node");
    assert_eq!(points_in(&told, &tables), ["/mnt", "/data"]);
    let users = told.ask_tables(&tables).unwrap().to_string();
    assert!(users.contains("/mnt on the node itself") && !users.contains("shares"), "{users}");
}

/// Whoever makes a Pod chooses where its containers have a volume.
#[test]
fn a_container_with_a_place_of_the_drivers_name_is_a_user() {
    let survey = [
        space("node", &[("/vol", "/driver/shares rw")]),
        space("container", &[("/vol", "/driver/shares rw")]),
        space("other", &[("9:1 /", "/host ro"), ("/vol", "/x/driver/shares rw")]),
    ];
    let told = Question { kept_by_driver: vec!["/driver/shares".to_owned()], ..question() };
    assert_eq!(points(&told, survey), ["/driver/shares", "/x/driver/shares"]);
}

#[test]
fn what_a_driver_keeps_in_a_namespace_that_it_shares_with_the_node_hides_no_user() {
    let survey =
        [space("own", &[("/vol", "/driver/shares rw")]), space("container", &[("/vol", "/data rw")])];
    let told = Question { kept_by_driver: vec!["/driver/shares".to_owned()], ..question() };
    let tables = tables(survey, "own");
    let copies = told.copies(&tables).unwrap();
    let [copy] = copies.as_slice() else { panic!("{copies:?}") };
    assert_eq!(copy.mount.point, Path::new("/data"));
}

/// A driver into whose namespace the unmounting has not come.
#[test]
fn what_is_still_at_its_path_for_the_driver_is_a_copy() {
    let survey = [space("own", &[("/vol", "/k/claims/c-1/target rw")])];
    assert_eq!(points(&question(), survey), ["/k/claims/c-1/target"]);
}

/// The kernel would end it with the directory, and tell nobody.
#[test]
fn what_anybody_has_mounted_at_a_target_is_seen() {
    let survey = [
        space("own", &[("/vol", "/k/targets/c-2/target rw")]),
        // Bound from what is not mounted any more: it is somewhere else.
        space("container", &[("/c-1/target", "/data rw")]),
    ];
    let is_mounted = |survey: [Space; 2]| {
        let target = HostPath::recorded("/k/targets/c-1/target");
        tables(survey, "nobody").have_mounted(CLAIM, &target)
    };
    assert!(!is_mounted(survey));
    let driver = [space("own", &[]), space("driver", &[("/vol", "/host/k/targets/c-1/target rw")])];
    assert!(is_mounted(driver));
    let by_another_name = [("9:1 /k/targets/c-1", "/x rw"), ("/vol", "/x/target rw")];
    assert!(is_mounted([space("own", &[]), space("container", &by_another_name)]));
}

/// As kubelet makes it for a subPath, which may be all of the volume, and for a `local` PersistentVolume of the claim's path.
#[test]
fn what_a_pod_has_of_it_in_our_own_namespace_is_no_excuse() {
    let of_pods = ["volume-subpaths/x", "volumes/kubernetes.io~local-volume/x"];
    for (root, of_pod) in [("/vol/sub", of_pods[0]), ("/vol", of_pods[0]), ("/vol", of_pods[1])] {
        let at = format!("/k/pods/p/{of_pod}");
        let survey =
            [space("own", &[(root, &format!("{at} rw"))]), space("container", &[(root, "/data rw")])];
        assert_eq!(points(&question(), survey), [at.as_str(), "/data"], "{root}");
    }
}

/// A disk that is dead, and a file of a dead file system that some process has open.
#[tokio::test(start_paused = true)]
async fn what_hangs_for_one_volume_holds_up_no_other() {
    let of_disk = |number: &str| {
        let disk = Some(number.to_owned());
        let imprint = Imprint { device: number.into(), root: "/".into(), source: None, disk, raw: false };
        let left = Left { path: "/k/claims/c-1/target".into(), imprint };
        Question { left: [(CLAIM.to_owned(), left)].into(), ..question() }
    };
    let (dead, node) = ("4095:1048575", MountNamespace::default());
    let _hanging = [hang_at(&folder_of(dead).unwrap()).await, hang_at(&HostPath::recorded(OPEN_FILES)).await];
    let refused = find(of_disk(dead), &node).await;
    assert!(matches!(refused, Err(HostError::Hangs(_))), "{refused:?}");
    assert!(find(of_disk("4095:1048574"), &node).await.unwrap().is_empty());
}

/// A Pod that is privileged has mounted the file system that it has made on its raw device: no file is open.
#[tokio::test]
async fn a_raw_device_with_a_mounted_file_system_is_in_use() {
    // Any disk of this machine: what is asked of it changes nothing.
    let all = std::fs::read_dir("/sys/dev/block").unwrap().map(|entry| entry.unwrap().file_name());
    let number = all.map(|name| name.into_string().unwrap()).find(|number| disk(number).is_some()).unwrap();
    let imprint =
        Imprint { device: "0:6".into(), root: "/sdb".into(), source: None, disk: disk(&number), raw: true };
    let part = format!("{number} /");
    let mounts = [(part.as_str(), "/k/staging/a-1 rw"), (part.as_str(), "/inside rw")];
    let tables = tables([space("own", &mounts)], "nobody");
    let asked = Question { by_right: ["/k/staging/a-1".to_owned()].into(), ..question() };
    let mut users = Users::default();
    asked.ask_device(&imprint, &tables, &MountNamespace::default(), &mut users).await.unwrap();
    let said = users.to_string();
    assert!(said.contains("/inside") && !said.contains("staging"), "{said}");
}

/// What `asked` finds of the raw device `number`, in all that can be seen here but this process.
async fn said_of(asked: &Question, number: &str) -> String {
    let imprint =
        Imprint { device: "0:6".into(), root: "/x".into(), source: None, disk: disk(number), raw: true };
    let survey = Arc::new(survey::take(Path::new(PROC)).unwrap());
    let own = vec![std::fs::read_link("/proc/self/ns/mnt").unwrap()];
    let tables = Tables { survey, own, node: None };
    let mut users = Users::default();
    asked.ask_device(&imprint, &tables, &MountNamespace::default(), &mut users).await.unwrap();
    users.to_string()
}

/// Swap, a target of the kernel's own, or a loop device: no process has it open, and nothing is mounted.
#[tokio::test]
async fn a_raw_device_that_the_kernel_uses_is_in_use() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let run = |arguments: &[&str]| {
        let done = std::process::Command::new("losetup").args(arguments).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let device = run(&["--find", "--show", file.path().to_str().unwrap()]);
    let found = rustix::fs::stat(&device).unwrap().st_rdev;
    let number = text_of((rustix::fs::major(found), rustix::fs::minor(found)));
    let free = said_of(&question(), &number).await;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
    let taken = rustix::fs::open(&device, flags, rustix::fs::Mode::empty()).unwrap();
    let kept = said_of(&question(), &number).await;
    let by_driver = said_of(&Question { unstaged: false, ..question() }, &number).await;
    drop(taken);
    let upon = run(&["--find", "--show", &device]);
    let looped = said_of(&Question { unstaged: false, ..question() }, &number).await;
    run(&["--detach", &upon]);
    run(&["--detach", &device]);
    assert_eq!((free.as_str(), by_driver.as_str()), ("", ""));
    assert!(kept.contains(&format!("device {number} is busy")), "{kept}");
    let name = Path::new(&upon).file_name().unwrap().to_str().unwrap();
    assert!(looped.contains(&format!("block device {name} ")), "{looped}");
}
