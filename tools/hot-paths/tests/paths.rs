//! Every path is walkable, and every path is noted: without valgrind, in any build.

use hot_paths::expected;
use hot_paths::paths;

/// A path that fails, or that finds afterwards that its work was not done, panics.
#[test]
fn every_path_does_its_work() {
    paths::with_seed();
    for path in paths::all() {
        assert!(path.operations > 0, "{}", path.name);
        path.run();
    }
}

#[test]
fn names_are_there_once_and_are_found() {
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

/// What is noted for an architecture is a count for every path, and for nothing else.
#[test]
fn every_path_is_noted() {
    let directory = expected::file();
    let directory = directory.parent().expect("it lies in a directory");
    let mut names: Vec<_> = paths::all().iter().map(|path| path.name.to_owned()).collect();
    names.sort_unstable();
    let mut files = 0;
    for file in std::fs::read_dir(directory).expect("there are counts") {
        let path = file.expect("it can be listed").path();
        let counts = expected::parse(&std::fs::read_to_string(&path).expect("it can be read"));
        let counts = counts.unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        assert_eq!(
            counts.into_keys().collect::<Vec<_>>(),
            names,
            "{}",
            path.display()
        );
        files += 1;
    }
    assert!(files > 0, "nothing is noted for any architecture");
}
