//! Reader of settings: looks each one up in the environment and in the file, checks it against its row of the table, and records it.
//! Settings that are never read are typing errors. This file knows the form of settings, not their meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::environment::{Environment, nearest};
use super::problem::{ConfigProblem, Source};
use super::settings::{self, Kind, Setting, variable};

/// Value as written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Number(i128),
    Fraction(f64),
    Flag(bool),
    /// Another type, with its name.
    Other(&'static str),
    /// Text from the environment.
    Variable(String),
}

/// Settings during reading.
pub(super) struct SettingsReader<'a> {
    /// Everything in the file, by full name, with its line.
    file: BTreeMap<String, (Value, usize)>,
    /// Sections of the file, with their lines.
    sections: BTreeMap<String, usize>,
    pub(super) environment: &'a Environment,
    pub(super) read: BTreeSet<&'static str>,
    /// Settings that are set, in the form of the file.
    pub(super) set: BTreeMap<&'static str, String>,
    pub(super) errors: Vec<ConfigProblem>,
    pub(super) warnings: Vec<ConfigProblem>,
}

impl<'a> SettingsReader<'a> {
    /// Parses the text of a file. Records every place that is no TOML.
    pub(super) fn new(text: &str, environment: &'a Environment) -> Self {
        let mut settings = Self {
            file: BTreeMap::new(),
            sections: BTreeMap::new(),
            environment,
            read: BTreeSet::new(),
            set: BTreeMap::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let fact = format!("not TOML: {}", error.message().replace('\n', ", "));
            settings
                .errors
                .push(ConfigProblem::new("", fact).at(Source::Line(line)));
        }
        settings.take(text, "", table.get_ref());
        settings
    }

    fn take(&mut self, text: &str, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let line = line_of(text, key.span().start);
            let name = format!("{prefix}{}", key.get_ref());
            let value = match value.get_ref() {
                DeValue::Table(inner) => {
                    self.sections.insert(name.clone(), line);
                    self.take(text, &format!("{name}."), inner);
                    continue;
                }
                DeValue::String(text) => Value::Text(text.clone().into_owned()),
                DeValue::Boolean(flag) => Value::Flag(*flag),
                DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::Number(number),
                    Err(_) => Value::Other("a number out of range"),
                },
                DeValue::Float(number) => match number.as_str().parse() {
                    Ok(number) => Value::Fraction(number),
                    Err(_) => Value::Other("no number"),
                },
                DeValue::Datetime(_) => Value::Other("a date"),
                DeValue::Array(_) => Value::Other("a list"),
            };
            self.file.insert(name, (value, line));
        }
    }

    /// Returns the place of a setting.
    pub(super) fn source(&self, key: &str) -> Source {
        let variable = variable(key);
        if self.environment.get(&variable).is_some() {
            return Source::Variable(variable);
        }
        let line = self.file.get(key).map(|(_, line)| *line);
        match line.or_else(|| self.sections.get(key).copied()) {
            Some(line) => Source::Line(line),
            None => Source::Nowhere,
        }
    }

    /// Records an error of a setting, and returns a harmless value.
    pub(super) fn error<T: Default>(&mut self, key: &str, fact: &str) -> T {
        let problem = ConfigProblem::new(key, fact).at(self.source(key));
        self.errors.push(problem);
        T::default()
    }

    /// Records a warning.
    pub(super) fn warn(&mut self, key: &str, fact: &str) {
        let problem = ConfigProblem::new(key, fact).at(self.source(key));
        self.warnings.push(problem);
    }

    /// Returns whether this setting, or one below it, has an error.
    pub(super) fn has_error(&self, key: &str) -> bool {
        let below = |name: &str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
        self.errors
            .iter()
            .any(|error| error.setting == key || below(&error.setting))
    }

    /// Returns the row and the value of a setting. The environment overrides the file, so that one image
    /// serves many nodes.
    fn value(&mut self, key: &'static str) -> Option<(&'static Setting, Value)> {
        let setting =
            settings::find(key).unwrap_or_else(|| panic!("{key} has no row in the table of settings"));
        self.read.insert(key);
        let value = match self.environment.get(&variable(key)) {
            Some(Ok(text)) => Value::Variable(text),
            Some(Err(fact)) => return self.error(key, &fact),
            None => self.file.get(key)?.0.clone(),
        };
        let shown = match &value {
            Value::Text(text) => format!("{text:?}"),
            Value::Number(number) => number.to_string(),
            Value::Fraction(number) => number.to_string(),
            Value::Flag(flag) => flag.to_string(),
            Value::Other(what) => (*what).to_owned(),
            Value::Variable(text)
                if setting.kind.bounds().is_some() || matches!(setting.kind, Kind::Flag | Kind::Ratio) =>
            {
                text.trim().to_owned()
            }
            Value::Variable(text) => format!("{text:?}"),
        };
        self.set.insert(key, shown);
        Some((setting, value))
    }

    fn must_be<T: Default>(&mut self, setting: &Setting) -> T {
        let shown = self.set.get(setting.name).cloned().unwrap_or_default();
        self.error(
            setting.name,
            &format!("must be {}, and is {shown}", setting.kind.allowed()),
        )
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let (setting, value) = self.value(key)?;
        let (Value::Text(text) | Value::Variable(text)) = value else {
            return self.must_be(setting);
        };
        match setting.kind {
            Kind::OneOf(texts) if !texts.contains(&text.as_str()) => self.must_be(setting),
            _ => Some(text),
        }
    }

    /// Reads several texts, separated by commas.
    pub(super) fn list(&mut self, key: &'static str, setting: &mut Vec<String>) {
        if let Some(text) = self.text(key) {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            *setting = parts.map(str::to_owned).collect();
        }
    }

    pub(super) fn integer(&mut self, key: &'static str) -> Option<u64> {
        let (setting, value) = self.value(key)?;
        let (least, most) = setting.kind.bounds().expect("it is a number");
        // Fail points need many small segments.
        #[cfg(feature = "failpoints")]
        let least = match lock_node::fail_points::rare_steps_are_frequent() {
            true => 1,
            false => least,
        };
        let number = match value {
            Value::Variable(text) => text.trim().parse().ok(),
            Value::Number(number) => u64::try_from(number).ok(),
            _ => None,
        };
        match number {
            Some(number) if (least..=most).contains(&number) => Some(number),
            _ => self.must_be(setting),
        }
    }

    /// Reads the id of the node; `hostname` takes it from the number at the end of the machine's name, which counts from 0.
    pub(super) fn node_id(&mut self, key: &'static str) -> Option<u64> {
        let by_name = match self.environment.get(&variable(key)) {
            Some(Ok(text)) => text.trim() == "hostname",
            _ => matches!(self.file.get(key), Some((Value::Text(text), _)) if text == "hostname"),
        };
        if !by_name {
            return self.integer(key);
        }
        self.value(key);
        let name = self.environment.host_name().unwrap_or_default().to_owned();
        let digits = name.len()
            - name
                .trim_end_matches(|character: char| character.is_ascii_digit())
                .len();
        match name[name.len() - digits..].parse::<u64>() {
            Ok(ordinal) if ordinal < u64::MAX => Some(ordinal + 1),
            _ => self.error(
                key,
                &format!("is \"hostname\", but this machine's name, {name:?}, does not end in a number"),
            ),
        }
    }

    /// Reads a number from 0 to 1.
    pub(super) fn ratio(&mut self, key: &'static str, ratio: &mut f64) {
        let Some((setting, value)) = self.value(key) else {
            return;
        };
        let given = match value {
            Value::Variable(text) => text.trim().parse().ok(),
            Value::Fraction(number) => Some(number),
            Value::Number(number) => Some(number as f64),
            _ => None,
        };
        match given {
            Some(given) if (0.0..=1.0).contains(&given) => *ratio = given,
            _ => self.must_be(setting),
        }
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        let (setting, value) = self.value(key)?;
        let flag = match value {
            Value::Variable(text) => text.trim().parse().ok(),
            Value::Flag(flag) => Some(flag),
            _ => None,
        };
        flag.or_else(|| self.must_be(setting))
    }

    pub(super) fn switch(&mut self, key: &'static str, setting: &mut bool) {
        *setting = self.flag(key).unwrap_or(*setting);
    }

    pub(super) fn positive(&mut self, key: &'static str, setting: &mut u64) {
        *setting = self.integer(key).unwrap_or(*setting);
    }

    pub(super) fn count(&mut self, key: &'static str, setting: &mut u32) {
        if let Some(number) = self.integer(key) {
            *setting = u32::try_from(number).expect("its row in the table bounds it");
        }
    }

    pub(super) fn size(&mut self, key: &'static str, setting: &mut usize) {
        if let Some(number) = self.integer(key) {
            *setting = usize::try_from(number).unwrap_or(usize::MAX);
        }
    }

    pub(super) fn duration(&mut self, key: &'static str, setting: &mut Duration) {
        if let Some(milliseconds) = self.integer(key) {
            *setting = Duration::from_millis(milliseconds);
        }
    }

    /// Returns the entries below a section that is read as a whole: name, value and line of each.
    pub(super) fn below(&self, section: &str) -> Vec<(String, Value, usize)> {
        let prefix = format!("{section}.");
        let all = self.file.iter().filter(|(name, _)| name.starts_with(&prefix));
        all.map(|(name, (value, line))| (name[prefix.len()..].to_owned(), value.clone(), *line))
            .collect()
    }

    /// Returns the names of sections within a section.
    pub(super) fn sections_below(&self, section: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{section}.");
        let names = self.sections.keys();
        names.filter_map(move |name| name.strip_prefix(&prefix).filter(|rest| !rest.contains('.')))
    }

    /// Returns whether the file has this name, as a value or as a section.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.file.contains_key(name) || self.sections.contains_key(name)
    }

    /// Reports names that no setting has read.
    pub(super) fn refuse_unknown(&mut self) {
        let is_section = |name: &str| settings::SECTIONS.iter().any(|section| section.name == name);
        let is_members = |name: &str| name == "members" || name.starts_with("members.");
        let mut unknown: Vec<(String, usize)> = Vec::new();
        for (name, line) in &self.sections {
            if !is_section(name) && !is_members(name) {
                unknown.push((name.clone(), *line));
            }
        }
        for (name, (_, line)) in &self.file {
            let in_unknown = unknown.iter().any(|(section, _)| {
                name.strip_prefix(section.as_str())
                    .is_some_and(|rest| rest.starts_with('.'))
            });
            if !self.read.contains(name.as_str()) && !is_members(name) && !in_unknown {
                unknown.push((name.clone(), *line));
            }
        }
        unknown.sort_by_key(|(_, line)| *line);
        for (name, line) in unknown {
            let fact = match is_section(&name) {
                true => format!("is a section: [{name}]"),
                false => {
                    let sections = settings::SECTIONS.iter().map(|section| section.name);
                    let known = settings::all().map(|setting| setting.name).chain(sections);
                    match nearest(&name, known.chain(["members"])) {
                        Some(meant) => format!("unknown setting; did you mean {meant}?"),
                        None => "unknown setting".to_owned(),
                    }
                }
            };
            self.errors
                .push(ConfigProblem::new(name, fact).at(Source::Line(line)));
        }
        for (slip, meant) in self.environment.probable_typos() {
            let problem = ConfigProblem::new("", format!("unknown setting; did you mean {meant}?"));
            self.warnings.push(problem.at(Source::Variable(slip)));
        }
    }
}

/// Returns the line of an offset, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}
