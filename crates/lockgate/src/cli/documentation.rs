//! Checks of the repository's documents: every command, setting, metric, error code and test that they name exists, every relative link
//! leads to a file and a heading, and the table of contents has every page.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use crate::config::settings;

/// Root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Collects the text of all files below `directory`.
fn collect(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push((path, text));
        }
    }
}

/// Returns the documents for users, and the files for deployments, which have commands in their comments.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for directory in ["docs", "deploy"] {
        collect(&root().join(directory), &mut found);
    }
    // Without the changelog, which names removed commands.
    for page in [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "RELEASING.md",
        "ARCHITECTURE.md",
    ] {
        let path = root().join(page);
        let text = fs::read_to_string(&path).expect("a page");
        found.push((path, text));
    }
    found.sort();
    found
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// Splits a Markdown page into the lines of its code blocks, with continued lines joined, and the text outside of them.
fn split_blocks(page: &str) -> (Vec<String>, String) {
    let (mut code, mut prose, mut inside) = (String::new(), String::new(), false);
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else {
            let part = if inside { &mut code } else { &mut prose };
            part.push_str(line);
            part.push('\n');
        }
    }
    (lines(&code), prose)
}

/// Returns the lines of a script, with continued lines joined.
fn lines(script: &str) -> Vec<String> {
    let joined = script.replace("\\\n", " ");
    joined.lines().map(str::to_owned).collect()
}

/// Returns the commands that a document names: in code blocks and scripts those at the start of a line, in
/// prose the code spans.
fn commands(path: &Path, text: &str) -> Vec<String> {
    let (code, spans) = if is_markdown(path) {
        let (code, prose) = split_blocks(text);
        let spans = prose.split('`').skip(1).step_by(2).map(str::to_owned);
        (code, spans.collect())
    } else {
        (lines(text), Vec::new())
    };
    let code = code.into_iter().map(|line| {
        let line = line.trim_start_matches([' ', '#', '(', '$']);
        line.to_owned()
    });
    let is_command = |line: &String| {
        let rest = line.strip_prefix("lockgate ");
        rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_lowercase() || first == '-'))
    };
    code.chain(spans).filter(is_command).collect()
}

/// Returns the words of a command up to the first one that a shell would expand, without the marks of
/// optional parts.
fn words(line: &str) -> Vec<String> {
    let of_the_shell =
        |word: &str| word == "--" || word.starts_with(['"', '\'', '$', '|', ';', '&', '#', '>', '<']);
    line.split_whitespace()
        .take_while(|word| !of_the_shell(word))
        .map(|word| word.trim_matches(['[', ']', '…', ';', ')']).to_owned())
        .filter(|word| !word.is_empty())
        .collect()
}

/// The program's command line in its two forms: `lockgate lock` has verbs, or runs a command behind `--`.
struct Programs {
    with_verbs: clap::Command,
    that_runs: clap::Command,
}

impl Programs {
    fn build() -> Self {
        let program = |line: &str| {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let mut program = super::program(&arguments);
            program.build();
            program
        };
        Self {
            with_verbs: program("lockgate"),
            that_runs: program("lockgate lock --"),
        }
    }

    /// Returns the one for a documented command.
    fn of(&self, line: &str) -> &clap::Command {
        let is_lock = line.starts_with("lockgate lock ") && !line.starts_with("lockgate lock run ");
        match is_lock && (line.contains(" -- ") || line.ends_with(" --")) {
            true => &self.that_runs,
            false => &self.with_verbs,
        }
    }
}

/// Returns the error of a command; `None` if it is valid.
fn fault(programs: &Programs, line: &str) -> Option<String> {
    let program = programs.of(line);
    let words = words(line);
    let mut command = program;
    let mut has_operand = false;
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        if let Some(option) = word.strip_prefix("--") {
            let (name, value) = option
                .split_once('=')
                .map_or((option, None), |(name, value)| (name, Some(value)));
            let is_named = |one: &&clap::Arg| {
                let aliases = one.get_all_aliases().unwrap_or_default();
                one.get_long() == Some(name) || aliases.contains(&name)
            };
            let known = command.get_arguments().find(is_named);
            let Some(known) = known else {
                return Some(format!("{} has no option --{name}", command.get_name()));
            };
            if known.get_action().takes_values() && value.is_none() {
                rest.next();
            }
        } else if word.starts_with('-') {
            // A short option; the documents use few of them.
        } else if let Some(inner) = command.find_subcommand(word) {
            command = inner;
        } else if command.has_subcommands() && !word.chars().all(|each| each.is_uppercase() || each == '_') {
            return Some(format!("{} has no command {word}", command.get_name()));
        } else {
            has_operand = true;
        }
    }
    let runs_another = command.get_arguments().any(clap::Arg::is_last_set);
    let lacks_it = runs_another && has_operand && !(line.contains(" -- ") || line.ends_with(" --"));
    lacks_it.then(|| format!("{} needs `-- COMMAND`", command.get_name()))
}

#[test]
fn documented_commands_exist() {
    let programs = Programs::build();
    let mut faults = Vec::new();
    let mut count = 0;
    for (path, text) in documents() {
        for line in commands(&path, &text) {
            count += 1;
            if let Some(fault) = fault(&programs, &line) {
                faults.push(format!("{}: {fault}: {line}", path.display()));
            }
        }
    }
    assert!(count > 100, "only {count} commands were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the arguments of a command that a reader can type as it is; `None` for one with placeholders, or that a
/// shell changes.
fn arguments(line: &str) -> Option<Vec<OsString>> {
    let line = line.split(" #").next().unwrap_or_default().trim();
    if line.contains(['\'', '[', '…', '|', '<', '>', ';', '&', '`', '(', '\\'])
        || !line.matches('"').count().is_multiple_of(2)
    {
        return None;
    }
    // Blanks in quotes do not end a word.
    let mut words = String::new();
    for (at, part) in line.split('"').enumerate() {
        words.push_str(&if at % 2 == 1 {
            part.replace(' ', "_")
        } else {
            part.to_owned()
        });
    }
    let words = words.split_whitespace().map(|word| match word.starts_with('$') {
        // A variable: a node's id, or an address.
        true => "1".to_owned(),
        false => word.to_owned(),
    });
    let is_placeholder = |word: &String| {
        let letters = word.trim_matches(|each: char| !each.is_ascii_alphanumeric());
        letters.len() > 1
            && letters
                .chars()
                .all(|each| each.is_ascii_uppercase() || each == '_')
    };
    let words: Vec<String> = words.collect();
    (!words.iter().any(is_placeholder)).then(|| words.into_iter().map(OsString::from).collect())
}

#[test]
fn documented_commands_are_parsed() {
    let programs = Programs::build();
    let mut faults = Vec::new();
    let mut count = 0;
    for (path, text) in documents() {
        let code = match is_markdown(&path) {
            true => split_blocks(&text).0.join("\n"),
            false => text,
        };
        for arguments in commands(Path::new("script"), &code)
            .iter()
            .filter_map(|line| arguments(line))
        {
            count += 1;
            let line: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
            let program = programs.of(&line.join(" ")).clone();
            if let Err(error) = program.try_get_matches_from(&arguments)
                && !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
            {
                faults.push(format!("{}: {arguments:?}: {error}", path.display()));
            }
        }
    }
    assert!(count > 50, "only {count} commands were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn invalid_commands_are_found() {
    let programs = Programs::build();
    for line in [
        "lockgate lock cancel",
        "lockgate lock break orders/42 --because hangs",
        "lockgate cluster leader",
        "lockgate locks --holders",
        "lockgate --server 127.0.0.1:7401 locks",
    ] {
        assert!(fault(&programs, line).is_some(), "{line}");
    }
    for line in [
        "lockgate lock NAME [OPTIONS] -- COMMAND",
        "lockgate lock run NAME -- COMMAND",
        "lockgate lock show NAME",
        "lockgate lock",
        "lockgate locks [PREFIX]",
        "lockgate member list --server lock-1.example:7400",
    ] {
        assert_eq!(fault(&programs, line), None, "{line}");
    }
}

/// Returns the anchor of a heading, as the usual renderers make it.
fn anchor(heading: &str) -> String {
    // A link counts with its text only.
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let kept = text.trim().to_lowercase();
    kept.chars()
        .filter(|each| each.is_alphanumeric() || [' ', '-', '_'].contains(each))
        .map(|each| if each == ' ' { '-' } else { each })
        .collect()
}

/// Returns the anchors of a page. A repeated heading has a number at its end.
fn anchors(page: &str) -> BTreeSet<String> {
    let (_, prose) = split_blocks(page);
    let mut anchors = BTreeSet::new();
    for line in prose.lines() {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let name = anchor(heading);
        let again = (1..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone())
            .chain(again)
            .find(|one| !anchors.contains(one));
        anchors.extend(free);
    }
    anchors
}

/// Returns the relative links of a page.
fn links(page: &str) -> Vec<String> {
    let (_, prose) = split_blocks(page);
    // Code spans hold no links.
    let prose: String = prose.split('`').step_by(2).collect();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets
        .map(|(target, _)| target.to_owned())
        .filter(|target| !target.contains("://") && !target.contains(' '))
        .collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut faults = Vec::new();
    let mut count = 0;
    for (path, text) in documents().into_iter().filter(|(path, _)| is_markdown(path)) {
        for link in links(&text) {
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().expect("a directory").join(file),
            };
            let is_good = match heading {
                "" => target.exists(),
                _ if !is_markdown(&target) => target.exists(),
                heading => fs::read_to_string(&target).is_ok_and(|page| anchors(&page).contains(heading)),
            };
            if !is_good {
                faults.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(count > 100, "only {count} links were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The code spans of a page outside of its code blocks.
fn spans(page: &str) -> Vec<String> {
    let (_, prose) = split_blocks(page);
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a page")
}

/// Names of other programs and files that look like settings.
const OTHER_NAMES: [&str; 2] = ["history.jsonl", "limits.cpu"];

#[test]
fn named_settings_exist() {
    let known: BTreeSet<&str> = settings::all().map(|setting| setting.name).collect();
    let sections: BTreeSet<&str> = known
        .iter()
        .filter_map(|name| Some(name.split_once('.')?.0))
        .collect();
    let is_setting = |span: &String| {
        let is_key = |key: &str| key.chars().all(|each| each.is_ascii_lowercase() || each == '_');
        span.split_once('.').is_some_and(|(section, key)| {
            sections.contains(section) && is_key(key) && !matches!(key, "rs" | "md" | "toml")
        }) && !OTHER_NAMES.contains(&span.as_str())
    };
    let mut faults = Vec::new();
    let mut count = 0;
    for (path, text) in documents().into_iter().filter(|(path, _)| is_markdown(path)) {
        for span in spans(&text).into_iter().filter(is_setting) {
            count += 1;
            if !known.contains(span.as_str()) {
                faults.push(format!("{}: {span}", path.display()));
            }
        }
    }
    assert!(count > 100, "only {count} settings were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Ports of other programs, and of clients in examples.
const OTHER_PORTS: [u16; 3] = [4318, 51515, 57832];

/// Ports that the documents choose for further listeners: the ZooKeeper port without TLS, the administration,
/// and Redis clients.
const SECOND_PORTS: [u16; 3] = [2182, 7600, 6379];

#[test]
fn named_ports_are_those_of_the_program() {
    use local_cluster::{HTTP_BASE_PORT, PEER_BASE_PORT, REDIS_BASE_PORT, ZOOKEEPER_BASE_PORT};

    const MAX_NODES: u16 = 9;
    let is_known = |port: u16| {
        [
            HTTP_BASE_PORT,
            PEER_BASE_PORT,
            ZOOKEEPER_BASE_PORT,
            REDIS_BASE_PORT,
        ]
        .iter()
        .any(|base| (*base..=base + MAX_NODES).contains(&port))
            || OTHER_PORTS.contains(&port)
            || SECOND_PORTS.contains(&port)
    };
    let mut faults = Vec::new();
    let mut count = 0;
    for (path, text) in documents() {
        for (host, rest) in text.match_indices(':').map(|(at, _)| text.split_at(at)) {
            let digits: String = rest[1..].chars().take_while(char::is_ascii_digit).collect();
            let is_host =
                host.ends_with("127.0.0.1") || host.ends_with(".example") || host.ends_with("0.0.0.0");
            if !is_host || digits.is_empty() {
                continue;
            }
            count += 1;
            if !digits.parse().is_ok_and(is_known) {
                faults.push(format!("{}: port {digits}", path.display()));
            }
        }
    }
    assert!(count > 50, "only {count} ports were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn named_metrics_are_documented() {
    let reference = page("docs/reference/metrics.md");
    let rows = reference.lines().filter_map(|line| line.strip_prefix("| `"));
    let known: BTreeSet<&str> = rows.filter_map(|row| Some(row.split_once('`')?.0)).collect();
    let mut faults = Vec::new();
    let mut count = 0;
    for (path, text) in documents().into_iter().filter(|(path, _)| is_markdown(path)) {
        for span in spans(&text) {
            let name = span.split_once('{').map_or(span.as_str(), |(name, _)| name);
            let is_metric = name.starts_with("lockgate_")
                && name.chars().all(|each| each.is_ascii_lowercase() || each == '_');
            if !is_metric {
                continue;
            }
            count += 1;
            let series = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            if !known.contains(name) && !series.is_some_and(|family| known.contains(family)) {
                faults.push(format!("{}: {span}", path.display()));
            }
        }
    }
    assert!(count > 100, "only {count} metrics were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn error_reference_has_every_code_with_its_status() {
    use lock_api::http::problem::Code;

    let reference = page("docs/reference/errors.md");
    let mut documented = BTreeSet::new();
    for row in reference.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        if let [status, codes, _] = cells[..]
            && let Ok(status) = status.parse::<u16>()
        {
            let codes = codes.split('`').skip(1).step_by(2);
            documented.extend(codes.map(|code| (status, code.to_owned())));
        }
    }
    let actual = Code::ALL
        .iter()
        .map(|code| (code.status().as_u16(), code.word().to_owned()));
    assert_eq!(documented, actual.collect());
}

#[test]
fn tests_named_for_vulnerabilities_exist() {
    let mut sources = Vec::new();
    collect(&root().join("crates"), &mut sources);
    let exists = |name: &str| {
        let (function, script) = (format!("fn {name}("), format!("{name}.txt"));
        sources
            .iter()
            .any(|(path, text)| path.ends_with(&script) || text.contains(&function))
    };
    let table = page("docs/internals/known-vulnerabilities.md");
    let mut count = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let tests = row.trim_matches('|').rsplit('|').next().expect("a last cell");
        for name in tests
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.contains('_') && !name.contains('/'))
        {
            count += 1;
            assert!(exists(name), "there is no test {name}: {row}");
        }
    }
    assert!(count > 20, "only {count} tests were found");
}

#[test]
fn table_of_contents_has_every_page() {
    let contents: BTreeSet<PathBuf> = links(&page("docs/SUMMARY.md"))
        .iter()
        .map(PathBuf::from)
        .collect();
    let docs = root().join("docs");
    let mut files = Vec::new();
    collect(&docs, &mut files);
    for (path, _) in files.iter().filter(|(path, _)| is_markdown(path)) {
        let path = path.strip_prefix(&docs).expect("a page below docs");
        assert!(
            path == Path::new("SUMMARY.md") || contents.contains(path),
            "docs/SUMMARY.md lacks {}",
            path.display()
        );
    }
}
