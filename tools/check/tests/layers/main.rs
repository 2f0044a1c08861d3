//! Structure of the sources: no large knots in any crate, and the layers of crates that declare them.
//!
//! A *knot* is a set of files that import each other in circles, directly or by way of others. Inside a knot no file can be understood, tested
//! or moved without the others. `imports` reads the `use` lines and paths of a crate, `knots` finds the knots, `manifests` holds which crate may
//! depend on which.

mod imports;
mod knots;
mod manifests;

use std::fs;
use std::path::{Path, PathBuf};

use imports::{Crate, Module};
use knots::knots;

/// Maximum size of a knot, in files.
const MAX_KNOT: usize = 8;

/// Crates with a larger knot, and its size. The table may only shrink: lower a number, or remove its row, when the knot becomes smaller.
const LARGER_KNOTS: [(&str, usize); 0] = [];

/// Layer of a crate: modules that may import the layers below, and each other only within one module or as `also` says.
struct Layer {
    /// Modules with all that is in them. A longer path takes a part of a module out into another layer.
    modules: &'static [&'static str],
    /// Imports between modules of this layer that are allowed: from the first to the second.
    also: &'static [(&'static str, &'static str)],
}

/// Layers of `znode-store`, the lowest first. Its page explains them.
const ZNODE_STORE: [Layer; 12] = [
    Layer {
        modules: &["stable_hash"],
        also: &[],
    },
    Layer {
        modules: &["model"],
        also: &[],
    },
    // The owners. A session finds its ephemeral nodes by their index in the tree.
    Layer {
        modules: &["tree", "sessions", "locks", "access"],
        also: &[("sessions", "tree")],
    },
    Layer {
        modules: &["snapshot::part", "snapshot::builder"],
        also: &[("snapshot::builder", "snapshot::part")],
    },
    Layer {
        modules: &["store"],
        also: &[],
    },
    Layer {
        modules: &["apply::context"],
        also: &[],
    },
    Layer {
        modules: &["apply::locks::contender_end"],
        also: &[],
    },
    Layer {
        modules: &["apply::tree_queries", "apply::znodes", "apply::session_opening"],
        also: &[],
    },
    Layer {
        modules: &["apply::create", "apply::locks"],
        also: &[],
    },
    Layer {
        modules: &[
            "apply::write",
            "apply::mirror",
            "apply::session_life",
            "apply::access",
            "apply::authorize",
        ],
        also: &[],
    },
    Layer {
        modules: &["apply", "read"],
        also: &[],
    },
    Layer {
        modules: &["snapshot", "restore_as_new_cluster"],
        also: &[],
    },
];

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all crates of the repository with their paths, such as `crates/znode-store`.
fn crates() -> Vec<(String, Crate)> {
    let mut found = Vec::new();
    for folder in ["crates", "tools"] {
        for entry in fs::read_dir(root().join(folder)).expect("the repository has the folder") {
            let entry = entry.expect("the folder can be read");
            let sources = entry.path().join("src");
            if sources.join("lib.rs").is_file() || sources.join("main.rs").is_file() {
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                found.push((name, Crate::read(&sources)));
            }
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(
        found.len() > 20,
        "the repository has more crates than {}",
        found.len()
    );
    found
}

/// Returns what is wrong with the sizes of the largest knots, which `bounds` limits.
fn violations(largest: &[(String, Vec<Module>)], bounds: &[(&str, usize)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, knot) in largest {
        let size = knot.len();
        let listed = bounds.iter().find(|(listed, _)| listed == name).map(|row| row.1);
        match listed {
            Some(bound) if size < bound => wrong.push(format!(
                "{name}: its largest knot has {size} files. Well done; the table LARGER_KNOTS still says {bound}"
            )),
            Some(bound) if size == bound => {}
            None if size <= MAX_KNOT => {}
            _ => wrong.push(format!(
                "{name}: {size} files import each other in circles, more than {}: {}",
                listed.unwrap_or(MAX_KNOT),
                knot.join(", ")
            )),
        }
    }
    let unknown = bounds
        .iter()
        .filter(|(listed, _)| !largest.iter().any(|(name, _)| name == listed));
    wrong.extend(unknown.map(|(listed, _)| format!("{listed}: in the table LARGER_KNOTS, and no crate")));
    wrong
}

/// Returns the layer of a module, and the name by which the layer lists it. The longest name decides.
fn layer_of<'l>(layers: &'l [Layer], module: &str) -> Option<(usize, &'l str)> {
    let named = layers.iter().enumerate().flat_map(|(at, layer)| {
        let matching = layer.modules.iter().filter(|name| is_within(module, name));
        matching.map(move |name| (at, *name))
    });
    named.max_by_key(|(_, name)| name.len())
}

fn is_within(module: &str, name: &str) -> bool {
    module
        .strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Returns the imports of a crate that its layers forbid.
fn forbidden(sources: &Crate, layers: &[Layer]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (from, targets) in &sources.imports {
        // The root declares and exports everything.
        if from.is_empty() {
            continue;
        }
        let Some((height, own)) = layer_of(layers, from) else {
            wrong.push(format!("{from} is in no layer"));
            continue;
        };
        for to in targets {
            let Some((target, name)) = layer_of(layers, to) else {
                continue;
            };
            let is_allowed = own == name || target < height || layers[height].also.contains(&(own, name));
            if !is_allowed {
                wrong.push(format!(
                    "{from} (layer {}) imports {to} (layer {})",
                    height + 1,
                    target + 1
                ));
            }
        }
    }
    // Such a path hides from which layer it imports.
    let hidden = sources.through_root.iter();
    wrong.extend(
        hidden.map(|(from, item)| format!("{from} imports crate::{item} and not the module of {item}")),
    );
    wrong
}

#[test]
fn knots_of_files_stay_within_their_bounds() {
    let largest: Vec<(String, Vec<Module>)> = crates()
        .into_iter()
        .map(|(name, sources)| {
            let mut found = knots(&sources.imports);
            found.sort_by_key(Vec::len);
            (name, found.pop().unwrap_or_default())
        })
        .collect();
    let wrong = violations(&largest, &LARGER_KNOTS);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn layers_of_the_state_machine_hold() {
    let sources = Crate::read(&root().join("crates/znode-store/src"));
    assert!(sources.imports.len() > 50, "the sources are read");
    let wrong = forbidden(&sources, &ZNODE_STORE);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_depend_only_on_crates_below_them() {
    let mut wrong = Vec::new();
    let mut read = 0;
    for (name, _) in crates() {
        if let Some(product) = name.strip_prefix("crates/") {
            let manifest =
                fs::read_to_string(root().join(&name).join("Cargo.toml")).expect("it has a manifest");
            wrong.extend(manifests::forbidden(product, &manifest));
            read += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        read,
        manifests::ALLOWED.len(),
        "the table lists a crate that is none"
    );
}

#[test]
fn manifests_reject_dependencies_upwards_sideways_and_on_libraries_of_others() {
    let wrong = |name: &str, used: &str| {
        let manifest =
            format!("[dependencies]\n{used}.workspace = true\n\n[dev-dependencies]\naxum = \"1\"\n");
        manifests::forbidden(name, &manifest).len()
    };
    assert_eq!(wrong("raft-node", "raft-log"), 0);
    assert_eq!(wrong("raft-node", "openraft"), 0);
    assert_eq!(wrong("raft-node", "znode-store"), 1);
    assert_eq!(wrong("raft-log", "openraft"), 1);
    assert_eq!(wrong("lock-api", "zk-front"), 1);
    assert_eq!(wrong("unknown", "tokio"), 1);
}

#[test]
fn bounds_reject_larger_and_smaller_knots() {
    let knot = |size: usize| (0..size).map(|at| format!("m{at}")).collect::<Vec<_>>();
    let check = |name: &str, size| violations(&[(name.into(), knot(size))], &[("listed", 10)]).len();
    assert_eq!(check("listed", 10), 0);
    assert_eq!(check("listed", 11), 1);
    assert_eq!(check("listed", 9), 1);
    // The listed crate is missing, which is the second.
    assert_eq!(check("other", MAX_KNOT), 1);
    assert_eq!(check("other", MAX_KNOT + 1), 2);
}

#[test]
fn layers_reject_imports_upwards_sideways_and_through_the_root() {
    let files = |model: &str, sessions: &str, locks: &str, apply: &str| {
        Crate::of([
            ("lib", "pub use apply::Applied;"),
            ("model", model),
            ("tree", ""),
            ("sessions", sessions),
            ("locks", locks),
            ("apply", apply),
            ("apply::locks", "use super::Applied; use crate::locks::Queue;"),
        ])
    };
    let wrong = |sources: &Crate| forbidden(sources, &ZNODE_STORE).len();
    let right = "use crate::model::Zxid; use crate::tree::NodeIndex;";
    assert_eq!(wrong(&files("", right, "", "use crate::sessions::Session;")), 0);
    assert_eq!(wrong(&files("use crate::apply::Applied;", right, "", "")), 1);
    assert_eq!(
        wrong(&files("", right, "use crate::{sessions::Session, tree};", "")),
        2
    );
    assert_eq!(wrong(&files("use crate::Applied;", right, "", "")), 1);
    assert_eq!(wrong(&files("", right, "fn f() { crate::apply::g() }", "")), 1);
    let unknown = Crate::of([("lib", ""), ("elsewhere", "")]);
    assert_eq!(wrong(&unknown), 1);
}
