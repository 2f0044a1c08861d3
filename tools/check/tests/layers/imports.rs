//! Imports between the files of a crate, read from their text.
//!
//! Counted are `use` trees and paths in code that begin with `crate::`, `super::`, `self::` or the name of a child module, each taken to the
//! deepest module that is a file. Left out are comments, texts, test modules, and the imports between a module and its own parents and children:
//! a folder is one unit for its neighbours. Re-exports are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Path of a module below its crate, such as `tree::node`; empty for the root.
pub type Module = String;

/// Modules of a crate and their imports.
pub struct Crate {
    /// Modules that each module imports.
    pub imports: BTreeMap<Module, BTreeSet<Module>>,
    /// Items that modules import by the names that the root exports: the importing module, and the item.
    pub through_root: BTreeSet<(Module, String)>,
}

impl Crate {
    /// Reads a crate from its folder `src`.
    pub fn read(sources: &Path) -> Self {
        let mut files = Vec::new();
        collect(sources, &mut Vec::new(), &mut files);
        Self::of(
            files
                .iter()
                .map(|(module, text)| (module.as_str(), text.as_str())),
        )
    }

    /// Reads a crate from the texts of its modules; `lib` and `main` are the root.
    pub fn of<'t>(files: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let texts: Vec<(Vec<&str>, String)> = files
            .into_iter()
            .map(|(module, text)| match module {
                "lib" | "main" => (Vec::new(), code(text)),
                module => (module.split("::").collect(), code(text)),
            })
            .collect();
        let modules: BTreeSet<Vec<&str>> = texts.iter().map(|(module, _)| module.clone()).collect();
        let mut imports: BTreeMap<Module, BTreeSet<Module>> = modules
            .iter()
            .map(|module| (module.join("::"), BTreeSet::new()))
            .collect();
        let mut through_root = BTreeSet::new();
        for (here, text) in &texts {
            for path in paths(text) {
                let Some(full) = resolve(here, &path, &modules) else {
                    continue;
                };
                let depth = (0..=full.len()).rev().find(|&end| modules.contains(&full[..end]));
                let target = &full[..depth.unwrap_or(0)];
                if target.is_empty() && path[0] == "crate" && full.len() == 1 && !here.is_empty() {
                    through_root.insert((here.join("::"), full[0].into()));
                }
                if !here.starts_with(target) && !target.starts_with(here) {
                    imports
                        .entry(here.join("::"))
                        .or_default()
                        .insert(target.join("::"));
                }
            }
        }
        Self {
            imports,
            through_root,
        }
    }
}

/// Collects the texts of all files below a folder, but for tests in files of their own.
fn collect(folder: &Path, above: &mut Vec<String>, files: &mut Vec<(Module, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of sources can be read") {
        let path = entry.expect("a folder of sources can be read").path();
        let name = path
            .file_stem()
            .expect("files have names")
            .to_string_lossy()
            .into_owned();
        if matches!(&*name, "test" | "tests") {
            continue;
        }
        if path.is_dir() {
            above.push(name);
            collect(&path, above, files);
            above.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources are text");
            let is_folder_itself = name == "mod" || above.is_empty() && matches!(&*name, "lib" | "main");
            let mut module = above.clone();
            if !is_folder_itself {
                module.push(name);
            }
            let module = match module.is_empty() {
                true => "lib".to_owned(),
                false => module.join("::"),
            };
            files.push((module, text));
        }
    }
}

/// Returns a text without comments, the contents of string literals, and its test module.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if next == '"' {
            string(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            // A quotation mark as a character begins no text.
            rest[1..].find('\'').map_or(1, |end| end + 2)
        } else {
            code.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        // What is left out separates what is around it.
        code.push(' ');
        rest = &rest[skipped..];
    }
    let tests = code.match_indices("#[cfg(test)]").map(|(at, _)| at);
    let module = |at: &usize| {
        let mut after = code[at + "#[cfg(test)]".len()..].trim_start();
        while after.starts_with("#[") {
            after = after.split_once(']').map_or("", |(_, after)| after).trim_start();
        }
        after.starts_with("mod ") && after.find('{').is_some_and(|open| !after[..open].contains(';'))
    };
    let end = tests.into_iter().find(module).unwrap_or(code.len());
    code.truncate(end);
    code
}

/// Returns the length of the raw string literal at the beginning of a text, if there is one.
fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let content = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = content.find(&end).map_or(content.len(), |at| at + end.len());
    Some(text.len() - content.len() + length)
}

/// Returns the length of the string literal at the beginning of a text.
fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, next) in text.char_indices().skip(1) {
        match next {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns all paths of `use` trees in code, and all paths that begin with `crate`, `super` or `self`.
fn paths(code: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    for (at, word) in words(code) {
        let after = &code[at + word.len()..];
        if word == "use" && after.starts_with(char::is_whitespace) {
            let tree = after.split(';').next().unwrap_or_default();
            branches(tree.trim(), &mut Vec::new(), &mut found);
        } else if matches!(word, "crate" | "super" | "self") && after.starts_with("::") {
            let end = after
                .find(|next: char| !is_word(next) && next != ':')
                .unwrap_or(after.len());
            let names = after[2..end].split("::").take_while(|name| !name.is_empty());
            found.push([word].into_iter().chain(names).collect());
        }
    }
    found
}

/// Returns the words of code with their places.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at + code[at..].find(is_word)?;
        let end = code[begin..]
            .find(|next| !is_word(next))
            .map_or(code.len(), |length| begin + length);
        at = end;
        Some((begin, &code[begin..end]))
    })
}

fn is_word(next: char) -> bool {
    next.is_alphanumeric() || next == '_'
}

/// Adds all paths of a `use` tree below `above`.
fn branches<'t>(tree: &'t str, above: &mut Vec<&'t str>, found: &mut Vec<Vec<&'t str>>) {
    let length = above.len();
    let mut rest = tree.trim();
    while let Some((name, after)) = rest
        .split_once("::")
        .filter(|(name, _)| name.chars().all(is_word))
    {
        above.push(name);
        rest = after.trim_start();
    }
    match rest
        .strip_prefix('{')
        .and_then(|group| group.trim_end().strip_suffix('}'))
    {
        Some(group) => {
            let (mut depth, mut begin) = (0, 0);
            for (at, next) in group.char_indices().chain([(group.len(), ',')]) {
                match next {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        let branch = group[begin..at].trim();
                        begin = (at + 1).min(group.len());
                        if !branch.is_empty() {
                            branches(branch, above, found);
                        }
                    }
                    _ => {}
                }
            }
        }
        None => {
            let name = rest.split_whitespace().next().unwrap_or_default();
            found.push(above.iter().copied().chain([name]).collect());
        }
    }
    above.truncate(length);
}

/// Returns a path from the crate's root; `None` if it is another crate's.
fn resolve<'t>(here: &[&'t str], path: &[&'t str], modules: &BTreeSet<Vec<&'t str>>) -> Option<Vec<&'t str>> {
    let mut base = here.to_vec();
    let mut rest = path;
    match path[0] {
        "crate" => (base, rest) = (Vec::new(), &path[1..]),
        "super" | "self" => {
            while let Some(("super" | "self", after)) =
                rest.split_first().map(|(first, after)| (*first, after))
            {
                if rest[0] == "super" {
                    base.pop();
                }
                rest = after;
            }
        }
        child => {
            let mut module = here.to_vec();
            module.push(child);
            if !modules.contains(&module) {
                return None;
            }
        }
    }
    // `use a::{self, b}` imports `a`.
    base.extend(rest.iter().copied().filter(|name| *name != "self"));
    Some(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports_of(text: &str) -> Vec<String> {
        let sources = Crate::of([
            ("lib", ""),
            ("a", ""),
            ("a::b", ""),
            ("a::c", ""),
            ("d", ""),
            ("d::e", text),
            ("d::e::f", ""),
            ("d::g", ""),
        ]);
        sources.imports["d::e"].iter().cloned().collect()
    }

    #[test]
    fn use_trees_and_paths_are_taken_to_the_deepest_file() {
        assert_eq!(imports_of("use crate::a::b::Thing;"), ["a::b"]);
        assert_eq!(
            imports_of("use crate::a::{self, b::{X, Y as Z}, Other};"),
            ["a", "a::b"]
        );
        assert_eq!(
            imports_of("pub(crate) use super::g::*;\nuse std::a::b;"),
            ["d::g"]
        );
        assert_eq!(
            imports_of("fn f() -> crate::a::c::T { super::super::a::h() }"),
            ["a", "a::c"]
        );
    }

    #[test]
    fn parents_children_comments_texts_and_tests_do_not_count() {
        assert!(imports_of("use super::Own; use self::f::Child; use f::Child; use crate::d::X;").is_empty());
        assert!(
            imports_of("// use crate::a::X;\n/* crate::a::X */ \"crate::a::X\" r#\"crate::a\"#").is_empty()
        );
        assert!(
            imports_of("const Q: char = '\"'; #[cfg(test)]\n#[allow(x)]\nmod tests { use crate::a::X; }")
                .is_empty()
        );
        assert_eq!(
            imports_of("const Q: char = '\"'; use crate::a::X; // '\"'"),
            ["a"]
        );
        assert_eq!(imports_of("#[cfg(test)]\nuse crate::a::b::X;\n"), ["a::b"]);
    }
}
