//! Paths held against the plain way to look at texts, which says what is right and takes longer.

use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// What a path is, by splitting its text.
fn by_splitting(text: &str) -> Result<Vec<&str>, BadPath> {
    if !text.starts_with('/') {
        return Err(BadPath::NotAbsolute);
    }
    if text == "/" {
        return Ok(Vec::new());
    }
    let components: Vec<&str> = text[1..].split('/').collect();
    for (at, component) in components.iter().enumerate() {
        match *component {
            "" if at + 1 == components.len() => return Err(BadPath::TrailingSlash),
            "" => return Err(BadPath::EmptyComponent),
            "." | ".." => return Err(BadPath::Relative),
            _ => {}
        }
        let is_bad = |c: &u32| matches!(c, 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff);
        if let Some(bad) = component.chars().map(u32::from).find(is_bad) {
            return Err(BadPath::Character(bad));
        }
    }
    match components.len() > MAX_PATH_DEPTH {
        true => Err(BadPath::TooDeep),
        false => Ok(components),
    }
}

/// Texts that are often paths, and often nearly are.
fn any_text() -> impl Strategy<Value = String> {
    let component = prop_oneof![
        8 => "[a-z0-9_-]{1,40}",
        1 => Just(String::new()),
        1 => "\\.{1,3}",
        1 => "[a-zé€\\x00-\\x20\\x7f-\\xa0\u{f8ff}\u{f900}\u{ffef}\u{fff0}]{1,20}",
    ];
    let rooted = prop::collection::vec(component, 0..2 * MAX_PATH_DEPTH).prop_map(|all| {
        let mut text = String::new();
        for component in &all {
            text.push('/');
            text.push_str(component);
        }
        text.truncate(text.floor_char_boundary(MAX_PATH_BYTES));
        text
    });
    prop_oneof![4 => rooted, 1 => "[/a.]{0,8}"]
}

proptest! {
    #[test]
    fn paths_are_what_splitting_says(text in any_text()) {
        let path = ZPath::parse(&text);
        let split = by_splitting(&text);
        prop_assert_eq!(path.as_ref().err(), split.as_ref().err());
        let Ok(path) = path else { return Ok(()) };
        prop_assert_eq!(path.as_str(), &*text);
        prop_assert!(path.components().eq(split.expect("it is a path")));
        prop_assert_eq!(path.name(), text.rsplit('/').next().expect("there is always one"));
        let parent = text.rfind('/').filter(|_| text != "/").map(|at| if at == 0 { "/" } else { &text[..at] });
        let above = path.parent();
        prop_assert_eq!(above.as_ref().map(ZPath::as_str), parent);
        prop_assert_eq!(path.parent_text(), parent.unwrap_or("/"));
    }

    #[test]
    fn what_is_joined_is_a_path_if_it_would_be_one_as_a_whole(text in any_text(), name in "[a-z./é\\x7f]{0,30}") {
        let Ok(path) = ZPath::parse(&text) else { return Ok(()) };
        let mut whole = String::from(if path.is_root() { "" } else { &text });
        whole.push('/');
        whole.push_str(&name);
        let is_one = !name.contains('/') && ZPath::parse(&whole).is_ok() && whole != "/";
        let joined = path.join(&name);
        prop_assert_eq!(joined.is_ok(), is_one, "{:?} {:?}", text, name);
        if let Ok(joined) = joined {
            prop_assert_eq!(joined.as_str(), &*whole);
        }
    }
}
