//! Source files and their items that the documents name: each must exist.
//!
//! A code span that is a path of a file or folder, such as `crates/raft-log/src/wal/writer.rs`, must lead somewhere. The code spans directly behind
//! a path, separated by nothing but a space or a comma, name items that are defined in that file. On the pages about one operation every other
//! name must at least occur in one of the files that the page names.
//!
//! A file may be abbreviated, such as `wal/writer.rs`: then it is the end of the path of a source file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders whose paths are checked.
const FOLDERS: [&str; 6] = ["crates/", "tools/", "deploy/", "docs/", "cluster/", ".ci/"];

/// Words in front of the name of an item that is defined.
const DEFINITIONS: [&str; 10] = [
    "fn ",
    "struct ",
    "enum ",
    "trait ",
    "const ",
    "static ",
    "type ",
    "mod ",
    "macro_rules! ",
    "union ",
];

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Collects all files with an extension below a folder.
fn collect(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of documents can be read") {
        let path = entry.expect("a folder of documents can be read").path();
        if path.is_dir() {
            collect(&path, extension, files);
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
}

/// Returns the documents that describe the sources.
fn documents() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "README.md",
        "RELEASING.md",
        "SECURITY.md",
    ]
    .iter()
    .map(|page| root().join(page))
    .collect();
    collect(&root().join("docs"), "md", &mut pages);
    pages
}

/// A path that a document names, and the items behind it.
#[derive(Debug, PartialEq, Eq)]
struct Reference {
    path: String,
    items: Vec<String>,
}

/// Returns the references of a page, without its code blocks.
fn references(page: &str) -> Vec<Reference> {
    let mut text = String::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            text.push_str(line);
            text.push('\n');
        }
    }
    let mut found: Vec<Reference> = Vec::new();
    let mut is_behind_path = false;
    let parts: Vec<&str> = text.split('`').collect();
    for (at, part) in parts.iter().enumerate() {
        if at % 2 == 0 {
            is_behind_path &= matches!(part.trim(), "" | ",");
        } else if is_path(part) {
            found.push(Reference {
                path: (*part).to_owned(),
                items: Vec::new(),
            });
            is_behind_path = true;
        } else if is_behind_path && is_name(part) {
            let reference = found.last_mut().expect("a path comes first");
            reference.items.push((*part).to_owned());
        } else {
            is_behind_path = false;
        }
    }
    found
}

/// Returns whether a code span is a path of this repository. One with a placeholder or a pattern is none.
fn is_path(span: &str) -> bool {
    let is_plain = |each: char| each.is_ascii_alphanumeric() || "/._-".contains(each);
    FOLDERS.iter().any(|folder| span.starts_with(folder)) && span.chars().all(is_plain)
}

/// Returns whether a code span may be the name of an item.
fn is_name(span: &str) -> bool {
    span.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && span
            .chars()
            .all(|each| each.is_ascii_alphanumeric() || each == '_')
}

/// Returns whether a source text defines an item.
fn defines(text: &str, item: &str) -> bool {
    DEFINITIONS.iter().any(|word| {
        text.match_indices(&format!("{word}{item}")).any(|(at, found)| {
            let after = text[at + found.len()..].chars().next();
            !after.is_some_and(|next| next.is_ascii_alphanumeric() || next == '_')
        })
    })
}

#[test]
fn named_files_and_items_exist() {
    let mut faults = Vec::new();
    let (mut paths, mut items) = (0, 0);
    for document in documents() {
        let page = fs::read_to_string(&document).expect("a document is text");
        for reference in references(&page) {
            paths += 1;
            let path = root().join(&reference.path);
            if !path.exists() {
                faults.push(format!(
                    "{}: {} does not exist",
                    document.display(),
                    reference.path
                ));
                continue;
            }
            for item in reference.items {
                items += 1;
                let is_defined = fs::read_to_string(&path).is_ok_and(|text| defines(&text, &item));
                if !is_defined {
                    faults.push(format!(
                        "{}: {} does not define {item}",
                        document.display(),
                        reference.path
                    ));
                }
            }
        }
    }
    assert!(
        paths > 300 && items > 150,
        "{paths} paths and {items} items are too few"
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn abbreviated_paths_are_the_ends_of_paths() {
    let mut sources = Vec::new();
    for folder in ["crates", "tools"] {
        collect(&root().join(folder), "rs", &mut sources);
    }
    let mut faults = Vec::new();
    let mut count = 0;
    for document in documents() {
        let page = fs::read_to_string(&document).expect("a document is text");
        let is_plain = |span: &&str| {
            span.ends_with(".rs")
                && span
                    .chars()
                    .all(|each| each.is_ascii_alphanumeric() || "/._-".contains(each))
        };
        for span in page.split('`').skip(1).step_by(2).filter(is_plain) {
            count += 1;
            if !sources.iter().any(|source| source.ends_with(span)) {
                faults.push(format!("{}: no source file is {span}", document.display()));
            }
        }
    }
    assert!(count > 300, "only {count} files were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Names on the pages about one operation that clients see, and that are not in the sources that these pages name.
const NAMES_OF_CLIENTS: [&str; 5] = [
    "ConnectionLoss",
    "outcome_unknown",
    "setWatches",
    "snapshot_failure",
    "unavailable",
];

#[test]
fn pages_about_an_operation_name_only_items_of_the_files_that_they_name() {
    let mut faults = Vec::new();
    let mut pages = Vec::new();
    collect(&root().join("docs/internals/architecture"), "md", &mut pages);
    for document in &pages {
        let page = fs::read_to_string(document).expect("a document is text");
        let named = references(&page)
            .into_iter()
            .map(|reference| root().join(reference.path));
        // Folders have no text.
        let sources: String = named.filter_map(|path| fs::read_to_string(path).ok()).collect();
        let words: BTreeSet<&str> = sources
            .split(|each: char| !each.is_ascii_alphanumeric() && each != '_')
            .collect();
        for span in page.split('`').skip(1).step_by(2).filter(|span| is_name(span)) {
            if !words.contains(span) && !NAMES_OF_CLIENTS.contains(&span) {
                faults.push(format!(
                    "{}: no file that it names has {span}",
                    document.display()
                ));
            }
        }
    }
    assert!(pages.len() > 8, "only {} pages were found", pages.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn items_belong_to_the_path_before_them() {
    let page = "See `crates/a/src/b.rs` `one`,\n`Two`, and `three`.\n```\n`crates/c.rs`\n```\n`tools/x/<name>` `tools/x` (`y`)";
    let reference = |path: &str, items: &[&str]| Reference {
        path: path.to_owned(),
        items: items.iter().map(|&item| item.to_owned()).collect(),
    };
    assert_eq!(
        references(page),
        [
            reference("crates/a/src/b.rs", &["one", "Two"]),
            reference("tools/x", &[])
        ]
    );
}

#[test]
fn uses_and_longer_names_define_nothing() {
    assert!(defines("pub(crate) async fn sync(&mut self)", "sync"));
    assert!(!defines("fn sync_dir() { self.sync() }", "sync"));
}
