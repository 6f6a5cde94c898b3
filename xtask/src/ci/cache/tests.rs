//! The folder between runs: what is forgotten, what is kept, and two clones on one machine.

use super::*;
use std::time::Duration;

/// A folder that is removed when its test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("xtask-cache-{}-{name}", std::process::id()));
        remove(&folder).expect("what an earlier test left");
        fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind, it would only take room.
        let _ = remove(&self.0);
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

fn own() -> Own {
    let name = |name: &str| BTreeSet::from([name.to_owned()]);
    Own { packages: name("two-clones"), targets: name("two_clones") }
}

/// A workspace whose program prints a number that its library knows.
fn clone(folder: &Path, number: u32) {
    write(
        &folder.join("Cargo.toml"),
        "[workspace]\nresolver = \"3\"\n[package]\nname = \"two-clones\"\nedition = \"2024\"\n",
    );
    write(&folder.join("src/lib.rs"), &format!("pub const NUMBER: u32 = {number};\n"));
    write(&folder.join("src/main.rs"), "fn main() { println!(\"{}\", two_clones::NUMBER); }\n");
}

fn built_and_run(clone: &Path, target: &Path) -> String {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--offline"]).current_dir(clone);
    command.env("CARGO_TARGET_DIR", target).env("CARGO_BUILD_BUILD_DIR", target);
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The second clone is older than what the first one built, as a clone on a machine that was kept can be.
#[test]
fn two_clones_that_differ_in_one_line_are_built_each_from_its_own_line() {
    let folder = Folder::new("clones");
    let (first, second, home) = (folder.0.join("a/m"), folder.0.join("b/m"), folder.0.join("cache"));
    clone(&second, 2);
    std::thread::sleep(Duration::from_millis(20));
    clone(&first, 1);
    for (clone, expected) in [(&first, "1"), (&second, "2"), (&first, "1")] {
        let cache = Cache::open_in(home.clone(), "key", own()).expect("a folder");
        assert_eq!(built_and_run(clone, cache.folder()), expected);
    }
    // Without forgetting, the second clone passes for built: what the rule above is for.
    let target = folder.0.join("shared");
    assert_eq!(built_and_run(&first, &target), "1");
    assert_eq!(built_and_run(&second, &target), "1", "cargo tells clones apart by now: is the rule still needed?");
}

#[test]
fn every_package_of_the_repository_is_ours() {
    let own = Own::read(&tree::root()).expect("the manifests are read");
    for package in ["macronode", "fuzz", "xtask"] {
        assert!(own.packages.contains(package) && own.targets.contains(package), "{package}");
    }
}

#[test]
fn only_what_is_ours_is_forgotten() {
    let folder = Folder::new("forget");
    let profile = folder.0.join("models/debug");
    let ours = [
        ".fingerprint/two-clones-0123/lib",
        "deps/libtwo_clones-0123.rlib",
        "deps/two_clones-0123.d",
        "deps/any_test-0123",
        "incremental/x/y",
        "two-clones",
    ];
    let others = [
        ".fingerprint/two-clones-more-0123/lib",
        ".fingerprint/serde-0123/lib",
        "deps/libserde-0123.rlib",
        "deps/serde-0123.d",
        "deps/libderive-0123.so",
        "build/serde-0123/build-script-build",
    ];
    ours.iter().chain(&others).for_each(|file| write(&profile.join(file), ""));
    forget(&folder.0, &own()).expect("it can be removed");
    let left = |files: &[&str]| files.iter().filter(|file| profile.join(file).exists()).count();
    assert_eq!((left(&ours), left(&others)), (0, others.len()));
}

#[test]
fn what_was_used_longest_ago_goes_first_and_nothing_of_others() {
    let folder = Folder::new("shrink");
    let keys = ["000000000000000a", "000000000000000b", "000000000000000c"];
    for (key, age_s) in keys.into_iter().zip([30, 20, 10]) {
        write(&folder.0.join(key).join("big"), &"x".repeat(1_000));
        let used = folder.0.join(key).join("used");
        write(&used, "");
        let time = fs::metadata(&used).and_then(|file| file.modified()).expect("a time") - Duration::from_secs(age_s);
        File::options().write(true).open(&used).and_then(|file| file.set_modified(time)).expect("an older file");
    }
    write(&folder.0.join("photos/holiday"), &"x".repeat(9_000));
    let cache = Cache::open_in(folder.0.clone(), keys[2], own()).expect("a folder");
    cache.shrink_to(2_500).expect("it shrinks");
    let left = |key: &str| folder.0.join(key).exists();
    assert_eq!(keys.map(left), [false, true, true]);
    cache.shrink_to(500).expect("it shrinks");
    assert!(!left(keys[2]), "not even the one just used may be larger than all may be");
    assert!(left("photos"), "the place may hold other things");
}

#[test]
fn an_unusable_folder_is_dropped_and_a_used_one_left_alone() {
    let folder = Folder::new("unusable");
    write(&folder.0.join("key"), "a file where a folder should be");
    let cache = Cache::open_in(folder.0.clone(), "key", own()).expect("it is replaced");
    assert!(cache.folder().is_dir());
    let second = Cache::open_in(folder.0.clone(), "key", own());
    assert!(second.is_err_and(|error| error.to_string().contains("another run")));
    drop(cache);
    assert!(Cache::open_in(folder.0.clone(), "key", own()).is_ok(), "a run that has ended holds no lock");
}

#[test]
fn a_folder_that_was_in_use_when_the_machine_was_reset_is_dropped() {
    let folder = Folder::new("reset");
    let (file, mark) = (folder.0.join("key/debug/file"), folder.0.join("key").join(IN_USE));
    let open = || Cache::open_in(folder.0.clone(), "key", own()).expect("a folder");
    let cache = open();
    write(&file, "compiled");
    drop(cache);
    assert!(mark.is_file(), "the run was killed");
    let cache = open();
    assert!(file.is_file(), "what a killed run has written is there");
    cache.shrink().expect("it is left to the next run");
    assert!(!mark.exists() && file.is_file());
    drop(cache);
    write(&mark, "another start of the machine");
    let _cache = open();
    assert!(!file.exists());
}

#[test]
fn what_was_half_dropped_is_removed() {
    let folder = Folder::new("dropped");
    write(&folder.0.join("000000000000000a.dropped/big"), "");
    let _cache = Cache::open_in(folder.0.clone(), "key", own()).expect("a folder");
    assert!(!folder.0.join("000000000000000a.dropped").exists());
}

#[test]
fn the_place_is_named_by_the_caller_or_follows_the_machine() {
    let home_with = |set: &[(&str, &str)]| {
        home(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)))
    };
    assert_eq!(home_with(&[("HOME", "/h")]), Some("/h/.cache/macronode-ci".into()));
    assert_eq!(home_with(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), Some("/x/macronode-ci".into()));
    assert_eq!(home_with(&[("HOME", "/h"), (PLACE, "/p")]), Some("/p".into()));
    assert_eq!(home_with(&[("HOME", "/h"), ("XDG_CACHE_HOME", "x")]), Some("/h/.cache/macronode-ci".into()));
    assert_eq!(home_with(&[("HOME", "")]), None);
}
