//! Checks that every path runs and every path has a recorded count: without valgrind, in any build.

use hot_paths::expected;
use hot_paths::paths;

/// A path panics if it fails, or if its work was not done.
#[test]
fn every_path_succeeds() {
    paths::seed_random_numbers();
    for path in paths::all() {
        assert!(path.operations > 0, "{}", path.name);
        path.run();
    }
}

#[test]
fn path_names_are_unique_and_findable() {
    let mut names: Vec<_> = paths::all().iter().map(|path| path.name).collect();
    for name in &names {
        assert_eq!(paths::find(name).map(|path| path.name), Some(*name));
    }
    names.sort_unstable();
    let length = names.len();
    names.dedup();
    assert_eq!(names.len(), length);
    assert!(paths::find("no such path").is_none());
}

/// The file of each architecture has a count for every path and for nothing else.
#[test]
fn every_path_has_a_recorded_count() {
    let directory = expected::file();
    let directory = directory.parent().expect("the file is in a directory");
    let mut names: Vec<_> = paths::all().iter().map(|path| path.name.to_owned()).collect();
    names.sort_unstable();
    let mut files = 0;
    for file in std::fs::read_dir(directory).expect("the directory of counts exists") {
        let path = file.expect("the directory can be listed").path();
        let counts = expected::parse(&std::fs::read_to_string(&path).expect("the file can be read"));
        let counts = counts.unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        assert_eq!(
            counts.into_keys().collect::<Vec<_>>(),
            names,
            "{}",
            path.display()
        );
        files += 1;
    }
    assert!(files > 0, "no counts are recorded for any architecture");
}
