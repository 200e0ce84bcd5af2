//! Over real files.

use std::{fs, os::unix::fs::PermissionsExt};

use prometheus::Registry;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
/// Services that are kept.
const MANY: usize = 100;

fn counters() -> metrics::CopyOnDisk {
    metrics::CopyOnDisk::new(&Registry::new()).expect("counters")
}

fn open(folder: &Path) -> (Cache, Known) {
    Cache::open(folder, MANY, counters()).expect("a folder")
}

fn at(secs: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
}

fn learned(key: &str, secs: u64) -> Learned {
    Learned {
        service: Service::new(key.parse().expect("a key")).into(),
        since: at(secs),
    }
}

fn keys(known: &Known) -> Vec<String> {
    let keys = known.services.iter().map(|one| one.service.key.to_string());
    keys.collect()
}

/// The files of services in a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let all = fs::read_dir(folder).expect("a folder");
    let paths = all.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect()
}

#[test]
fn the_next_process_knows_what_this_one_learned() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("made/for it");
    let (cache, known) = open(&folder);
    assert_eq!(known, Known::default());
    cache.keep(learned("g/b.B:1", 1));
    cache.keep(learned("a.A", 2));
    cache.keep(learned("gone.G", 3));
    cache.keep(learned("a.A", 4));
    assert!(cache.flush(PATIENCE));
    cache.forget(&"gone.G".parse().expect("a key"));
    cache.confirm(at(5));
    assert!(cache.flush(PATIENCE));
    drop(cache);
    let (_, known) = open(&folder);
    let expected = Known {
        services: vec![learned("a.A", 4), learned("g/b.B:1", 1)],
        confirmed: Some(at(5)),
    };
    assert_eq!(known, expected);
    for path in files(&folder) {
        let mode = fs::metadata(path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "for nobody else");
    }
}

#[test]
fn what_is_noted_last_is_written_though_nobody_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cache, _) = open(folder.path());
    let shared = Arc::downgrade(&cache.0.0);
    cache.keep(learned("a.A", 1));
    drop(cache);
    while shared.strong_count() > 0 {
        thread::yield_now();
    }
    assert_eq!(keys(&open(folder.path()).1), ["a.A"]);
}

#[test]
fn broken_and_foreign_files_are_left_out_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (cache, _) = open(folder.path());
    for key in ["a.A", "b.B", "c.C"] {
        cache.keep(learned(key, 1));
    }
    assert!(cache.flush(PATIENCE));
    drop(cache);
    let file = |key: &str| {
        let key = format!("\"key\":\"{key}\"");
        let has =
            |path: &std::path::PathBuf| fs::read_to_string(path).expect("a file").contains(&key);
        files(folder.path())
            .into_iter()
            .find(has)
            .expect("its file")
    };
    let broken = file("b.B");
    fs::write(&broken, "{\"version\":1,").expect("written");
    fs::rename(file("c.C"), path("0123456789abcdef.json")).expect("renamed");
    fs::write(path("notes.txt"), "mine").expect("written");
    fs::write(path("new"), "half of a fi").expect("written");
    fs::write(path("confirmed"), "yesterday").expect("written");
    fs::create_dir(path("folder.json")).expect("made");
    nix::unistd::mkfifo(&path("pipe.json"), nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
    let (cache, known) = open(folder.path());
    assert_eq!((keys(&known), known.confirmed), (vec!["a.A".into()], None));
    assert_eq!(
        fs::read_to_string(path("notes.txt")).expect("there"),
        "mine"
    );
    // What is learned anew takes the place of what is broken.
    cache.keep(learned("b.B", 2));
    assert!(cache.flush(PATIENCE));
    assert!(!path("new").exists());
    assert_eq!(keys(&open(folder.path()).1), ["a.A", "b.B"]);
}

#[test]
fn only_one_process_writes_and_the_next_one_follows() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, _) = open(folder.path());
    first.keep(learned("a.A", 1));
    assert!(first.flush(PATIENCE));
    let counters = counters();
    let (second, known) = Cache::open(folder.path(), MANY, counters.clone()).expect("read");
    assert_eq!(keys(&known), ["a.A"]);
    second.keep(learned("a.A", 2));
    while counters.failed.get() == 0 {
        thread::yield_now();
    }
    assert_eq!(open(folder.path()).1.services, [learned("a.A", 1)]);
    drop(first);
    assert!(second.flush(PATIENCE));
    assert_eq!(open(folder.path()).1.services, [learned("a.A", 2)]);
}

#[test]
fn what_cannot_be_written_is_tried_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("copy");
    let counters = counters();
    let (cache, _) = Cache::open(&folder, MANY, counters.clone()).expect("a folder");
    cache.keep(learned("a.A", 1));
    assert!(cache.flush(PATIENCE));
    fs::remove_dir_all(&folder).expect("removed");
    fs::write(&folder, "in the way").expect("written");
    cache.keep(learned("b.B", 2));
    while counters.failed.get() == 0 {
        thread::yield_now();
    }
    assert!(!cache.flush(Duration::ZERO));
    fs::remove_file(&folder).expect("removed");
    assert!(cache.flush(PATIENCE));
    assert_eq!(keys(&open(&folder).1), ["b.B"]);
}

#[test]
fn a_copy_is_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let counters = counters();
    let (cache, _) = Cache::open(folder.path(), 2, counters.clone()).expect("a folder");
    for key in ["a.A", "b.B", "one.More"] {
        cache.keep(learned(key, 1));
    }
    // What is in it is kept up to date.
    cache.keep(learned("a.A", 2));
    assert!(cache.flush(PATIENCE));
    assert_eq!(counters.services.get(), 2);
    drop(cache);
    let (_, mut known) = open(folder.path());
    known
        .services
        .sort_by(|a, b| a.service.key.cmp(&b.service.key));
    assert_eq!(known.services, [learned("a.A", 2), learned("b.B", 1)]);
    // Another one, with less room, takes no more than that.
    let (_, known) = Cache::open(folder.path(), 1, counters).expect("a folder");
    assert_eq!(known.services.len(), 1);
}
