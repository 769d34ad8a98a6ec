//! What is generated once stays, and is private.

use std::os::unix::fs::PermissionsExt as _;

use std::path::Path;

use domain::instances::DataDirKind;

use super::{DataDir, kind_of};

#[test]
fn the_secret_key_is_generated_once_and_only_its_owner_reads_it() {
    let temporary = tempfile::tempdir().expect("a directory");
    let data_dir = DataDir::open(&temporary.path().join("deep/data")).expect("made");
    let first = data_dir.secret_key(None).expect("generated").reveal();
    let second = data_dir.secret_key(None).expect("kept").reveal();
    assert_eq!(first, second);
    let mode = std::fs::metadata(data_dir.path().join("secret-key"))
        .expect("a file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_bad_secret_key_says_what_to_do() {
    let temporary = tempfile::tempdir().expect("a directory");
    let data_dir = DataDir::open(temporary.path()).expect("made");
    let error = format!("{:#}", data_dir.secret_key(Some("short")).expect_err("refused"));
    assert!(
        error.contains("TOLLGATE_SECRET_KEY") && error.contains("32 bytes"),
        "{error}"
    );
    assert!(!error.contains("short"), "{error}");
}

#[test]
fn the_instance_keeps_its_name() {
    let temporary = tempfile::tempdir().expect("a directory");
    let data_dir = DataDir::open(temporary.path()).expect("made");
    let generated = data_dir.instance(None).expect("generated");
    assert_eq!(data_dir.instance(None).expect("kept"), generated);
    assert_eq!(data_dir.instance(Some("gateway-1")).expect("given"), "gateway-1");
    assert!(data_dir.instance(Some("no spaces")).is_err());
}

#[test]
fn a_directory_belongs_to_one_process_at_a_time() {
    let temporary = tempfile::tempdir().expect("a directory");
    let first = DataDir::open(temporary.path()).expect("free");
    let error = DataDir::open(temporary.path()).expect_err("taken").to_string();
    assert!(error.contains("in use by another Tollgate"), "{error}");
    drop(first);
    DataDir::open(temporary.path()).expect("free again");
}

#[test]
fn what_the_directory_lies_on_is_said_by_the_closest_mount() {
    let mounts = "\
21 1 0:20 / / rw,relatime - overlay overlay rw,lowerdir=/a
22 21 8:1 / /var/lib/toll\\040gate rw,relatime shared:1 - ext4 /dev/vda rw
23 21 0:21 / /var/lib/toll\\040gate/cache rw - tmpfs tmpfs rw
24 21 8:2 / /tmp/volume rw - xfs /dev/vdb rw
";
    for (path, kind) in [
        ("/var/lib/toll gate/data", DataDirKind::Disk),
        ("/var/lib/toll gate/cache/data", DataDirKind::Memory),
        ("/data", DataDirKind::Overlay),
        ("/tmp/volume/data", DataDirKind::Disk),
    ] {
        assert_eq!(kind_of(mounts, Path::new(path)), kind, "{path}");
    }
    let on_disk = "21 1 8:1 / / rw - ext4 /dev/vda rw";
    assert_eq!(kind_of(on_disk, Path::new("/tmp/data")), DataDirKind::Temporary);
    assert_eq!(kind_of(on_disk, Path::new("/srv/tmp")), DataDirKind::Disk);
    assert_eq!(kind_of("", Path::new("/srv")), DataDirKind::Unknown);
}
