//! Language of the sources: plain English and the names of the field. CONTRIBUTING.md has the rules; this test finds three habits that break
//! them: doc comments that open with an interrogative, private phrases, and retired names. It cannot judge prose: a clean file may still read
//! badly.

mod prose;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use prose::prose;

/// Words that open a clause instead of naming a thing or an action. A doc comment must not begin with one.
const INTERROGATIVES: [&str; 20] = [
    "As long",
    "As many",
    "How",
    "So long",
    "So many",
    "So much",
    "Until when",
    "What",
    "Whatever",
    "When",
    "Where",
    "Whether",
    "Which",
    "Whichever",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "By what",
    "For whom",
];

/// Phrases that hide the actor or replace a term of the field, in lower case.
const PRIVATE_PHRASES: [&str; 40] = [
    "are told",
    "be told",
    "been told",
    "being told",
    "carried out",
    "carries out",
    "for ever",
    "gave back",
    "given back",
    "gives back",
    "in earnest",
    "in vain",
    "is heard",
    "is told",
    "is let in",
    "let in",
    "lets in",
    "life sign",
    "look on",
    "looks on",
    "nobody who",
    "somebody who",
    "stands still",
    "stood still",
    "tells of",
    "tells who",
    "tells what",
    "those who",
    "told apart",
    "told of",
    "was told",
    "were told",
    "what becomes of",
    "who asks",
    "who comes",
    "who holds",
    "who leads",
    "who reads",
    "who waits",
    "whoever",
];

/// Names that have become terms of the field. No module, type, constant or function may have one again.
const RETIRED_NAMES: [(&str, &str); 44] = [
    ("Asked", "the name of the request"),
    ("Asker", "LeaderRequests"),
    ("Backlog", "NotificationQueue"),
    ("Chronicler", "ClusterEventLog"),
    ("Door", "Listener"),
    ("DoorMeter", "ConnectionMetrics"),
    ("Found", "the name of the result"),
    ("GLANCE", "POLL_INTERVAL"),
    ("GivenUp", "Cancelled"),
    ("Happened", "FeedEvent"),
    ("Happening", "FeedEvent"),
    ("Janitor", "SegmentPreallocator"),
    ("Kept", "the name of the stored thing"),
    ("Knocker", "Announcer"),
    ("LOOK_EVERY", "POLL_INTERVAL"),
    ("MemoryKey", "RequestKey"),
    ("Outlet", "Subscriber"),
    ("PATIENCE", "TIMEOUT"),
    ("Passport", "Credentials"),
    ("Reign", "LeaderTerm"),
    ("Remembered", "RequestCache"),
    ("Told", "the name of the event"),
    ("Vigil", "RevocationWatch"),
    ("alike", "interning"),
    ("anew", "restore_as_new_cluster"),
    ("asker", "leader_client"),
    ("chronicle", "cluster_events"),
    ("delays", "lock_delay_timer"),
    ("front_door", "listener"),
    ("happenings", "event_feed"),
    ("hub", "notifier"),
    ("knock", "announce"),
    ("let_in", "authenticate"),
    ("looks", "recent_reads"),
    ("misfits", "incompatible_znodes"),
    ("onlookers", "subscribers"),
    ("passage", "middleware"),
    ("prospect", "would_wait"),
    ("pulse", "fsync_stats or session_keepalive"),
    ("restated", "mirrored"),
    ("sight", "visibility"),
    ("tap", "journal"),
    ("turns", "read_pacing"),
    ("vigil", "revocation_watch"),
];

/// Crates whose language is not plain yet, and the maximum number of their findings: interrogative openings, private phrases, retired names.
/// A number may only become smaller. A crate without a row has no findings.
const CEILINGS: [Ceiling; 0] = [];

type Ceiling = (&'static [&'static str], [usize; 3]);

/// Exceptions: the file, a part of the finding's line, and the reason.
const ALLOWED: [(&str, &str, &str); 0] = [];

/// Habit that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    Opening,
    Phrase,
    Name,
}

/// Place of a habit.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    habit: Habit,
    line: usize,
    text: String,
}

/// Finding with its file.
type Located = (String, Finding);

/// Returns the findings in a source file.
fn findings(source: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for part in prose(source) {
        if part.opens_doc && INTERROGATIVES.iter().any(|word| begins_with(part.text, word)) {
            found.push(Finding {
                habit: Habit::Opening,
                line: part.line,
                text: part.text.to_owned(),
            });
        }
        let text = part.text.to_lowercase();
        for phrase in PRIVATE_PHRASES.iter().filter(|phrase| contains(&text, phrase)) {
            found.push(Finding {
                habit: Habit::Phrase,
                line: part.line,
                text: format!("{phrase:?} in {:?}", part.text),
            });
        }
    }
    for (line, name) in declared_names(source) {
        let retired = RETIRED_NAMES.iter().find(|(retired, _)| *retired == name);
        let asks = [
            "how_", "nobody_", "nothing_", "what_", "who_", "whoever_", "whose_",
        ];
        let text = match retired {
            Some((name, instead)) => format!("{name} is retired: {instead}"),
            None if asks.iter().any(|prefix| name.starts_with(prefix)) => {
                format!("{name} does not name a thing or a behaviour")
            }
            None => continue,
        };
        found.push(Finding {
            habit: Habit::Name,
            line,
            text,
        });
    }
    found
}

fn begins_with(text: &str, word: &str) -> bool {
    let rest = text.strip_prefix(word);
    rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// Returns whether a text contains a phrase as whole words.
fn contains(text: &str, phrase: &str) -> bool {
    let mut places = text.match_indices(phrase);
    places.any(|(at, _)| {
        let (before, rest) = (&text[..at], &text[at + phrase.len()..]);
        !before.ends_with(char::is_alphanumeric) && !rest.starts_with(char::is_alphanumeric)
    })
}

/// Returns the names of the modules, types, constants and functions that a file declares, with their lines.
fn declared_names(source: &str) -> Vec<(usize, &str)> {
    const KEYWORDS: [&str; 8] = ["const", "enum", "fn", "mod", "static", "struct", "trait", "type"];
    let mut names = Vec::new();
    for (line, text) in (1..).zip(source.lines()) {
        let mut words = text.split_whitespace();
        let mut qualifiers = words
            .by_ref()
            .skip_while(|word| word.starts_with("pub") || ["async", "unsafe"].contains(word));
        if qualifiers.next().is_some_and(|word| KEYWORDS.contains(&word))
            && let Some(rest) = words.next()
        {
            let end = rest.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
            names.push((line, &rest[..end.unwrap_or(rest.len())]));
        }
    }
    names
}

/// Returns all source files of the repository except this test, with their crates.
fn sources() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for folder in ["crates", "tools"] {
        for entry in fs::read_dir(root.join(folder)).expect("the repository has the folder") {
            let entry = entry.expect("the folder can be read");
            if entry.path().is_dir() {
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                collect(&name, &entry.path(), &mut found);
            }
        }
    }
    found.retain(|(_, path)| !path.to_string_lossy().contains("tools/check/tests/language"));
    assert!(found.len() > 500, "only {} sources", found.len());
    found
}

fn collect(name: &str, folder: &Path, found: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(folder).expect("a folder of sources can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(name, &path, found);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push((name.to_owned(), path));
        }
    }
}

/// Returns the violations: crates above their ceilings, with their findings.
fn violations(found: &BTreeMap<String, Vec<Located>>, ceilings: &[Ceiling]) -> Vec<String> {
    let mut groups: Vec<(String, [usize; 3], Vec<&Located>)> = ceilings
        .iter()
        .map(|(crates, numbers)| {
            let findings = crates.iter().filter_map(|name| found.get(*name)).flatten();
            (crates.join(", "), *numbers, findings.collect())
        })
        .collect();
    let listed = |name: &String| ceilings.iter().any(|(crates, _)| crates.contains(&name.as_str()));
    let others = found.iter().filter(|(name, _)| !listed(name));
    groups.extend(others.map(|(name, findings)| (name.clone(), [0; 3], findings.iter().collect())));
    let mut wrong = Vec::new();
    for (name, ceiling, findings) in groups {
        for (habit, ceiling) in [Habit::Opening, Habit::Phrase, Habit::Name]
            .into_iter()
            .zip(ceiling)
        {
            let of_habit = findings.iter().filter(|(_, finding)| finding.habit == habit);
            let places: Vec<String> = of_habit
                .map(|(file, finding)| format!("  {file}:{}: {}", finding.line, finding.text))
                .collect();
            let count = places.len();
            if count > ceiling {
                let places = places.join("\n");
                wrong.push(format!(
                    "{name}: {count} of {habit:?}, more than {ceiling}:\n{places}"
                ));
            } else if count < ceiling {
                println!("{name}: {count} of {habit:?}; lower the ceiling of {ceiling}");
            }
        }
    }
    wrong
}

#[test]
fn sources_are_in_plain_english() {
    let mut found: BTreeMap<String, Vec<Located>> = BTreeMap::new();
    let mut unused = ALLOWED.to_vec();
    for (name, path) in sources() {
        let source = fs::read_to_string(&path).expect("a source can be read");
        let file = path.to_string_lossy();
        let file = file.split("../../").last().unwrap_or_default();
        for finding in findings(&source) {
            let line = source.lines().nth(finding.line - 1).unwrap_or_default();
            let allows = |(allowed, part, _): &(&str, &str, &str)| *allowed == file && line.contains(part);
            if ALLOWED.iter().any(allows) {
                unused.retain(|exception| !allows(exception));
            } else {
                found
                    .entry(name.clone())
                    .or_default()
                    .push((file.to_owned(), finding));
            }
        }
    }
    let wrong = violations(&found, &CEILINGS);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (file, part, _) in unused {
        println!("{file}: no finding has {part:?}; remove the exception");
    }
}

#[test]
fn planted_violations_are_found() {
    let habits = |source: &str| -> Vec<Habit> {
        findings(source)
            .into_iter()
            .map(|finding| finding.habit)
            .collect()
    };
    for (source, habit) in [
        ("/// Whether it is open.\nfn f() {}", Habit::Opening),
        ("//! What the node keeps.", Habit::Opening),
        ("    /// So many connections.\n", Habit::Opening),
        ("// The caller is told so.", Habit::Phrase),
        ("fn f() { warn!(\"Whoever waits, waits\"); }", Habit::Phrase),
        ("mod happenings;", Habit::Name),
        ("pub(crate) struct Told(u64);", Habit::Name),
        ("pub async fn who_may_write() {}", Habit::Name),
        ("const PATIENCE: u64 = 1;", Habit::Name),
    ] {
        assert_eq!(habits(source), [habit], "{source}");
    }
    for clean in [
        "/// Returns whether it is open.\nfn f() {}",
        "/// Whatsoever.",
        "// A lock for every order.",
        "/// Number of connections.\n/// Where it is not the first line.",
        "let whoever = told;",
        "/// Outlet in inner text.",
        "fn knock_down() {}",
    ] {
        assert_eq!(habits(clean), [], "{clean}");
    }
}

#[test]
fn ceilings_bound_the_findings_of_a_crate() {
    let finding = || {
        let finding = Finding {
            habit: Habit::Phrase,
            line: 1,
            text: String::new(),
        };
        ("file".to_owned(), finding)
    };
    let found = BTreeMap::from([
        ("a".to_owned(), vec![finding(), finding()]),
        ("b".to_owned(), vec![finding()]),
    ]);
    let cases: [(&[Ceiling], usize); 6] = [
        (&[], 2),
        (&[(&["a"], [0, 1, 0])], 2),
        (&[(&["a"], [0, 2, 0])], 1),
        (&[(&["a"], [0, 2, 0]), (&["b"], [0, 3, 0])], 0),
        (&[(&["a", "b", "c"], [0, 2, 0])], 1),
        (&[(&["a", "b", "c"], [0, 3, 0])], 0),
    ];
    for (ceilings, wrong) in cases {
        assert_eq!(violations(&found, ceilings).len(), wrong, "{ceilings:?}");
    }
}
