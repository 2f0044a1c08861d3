//! Paths held against the plain way to look at texts, which says what is right and takes longer.

use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::model::path::*;

/// Parses a path by splitting its text.
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
    Ok(components)
}

/// Texts that are often paths, and often nearly are.
fn any_text() -> impl Strategy<Value = String> {
    let component = prop_oneof![
        8 => "[a-z0-9_-]{1,40}",
        1 => Just(String::new()),
        1 => "\\.{1,3}",
        1 => "[a-zé€\\x00-\\x20\\x7f-\\xa0\u{f8ff}\u{f900}\u{ffef}\u{fff0}]{1,20}",
    ];
    let rooted = prop::collection::vec(component, 0..2 * SHORT_PATH_DEPTH).prop_map(|all| {
        let mut text = String::new();
        for component in &all {
            text.push('/');
            text.push_str(component);
        }
        text.truncate(text.floor_char_boundary(2 * SHORT_PATH_BYTES));
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
    fn join_accepts_exactly_legal_paths(text in any_text(), name in "[a-z./é\\x7f]{0,30}") {
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

#[test]
fn the_bounds_of_a_front_end_count_the_digits_of_sequential_names() {
    let bounds = PathBounds { bytes: 20, depth: 3 };
    for (text, sequential, refused) in [
        ("/a/b/c", false, None),
        ("/a/b/c/d", false, Some(BadPath::TooDeep { limit: 3 })),
        ("/aaaaaaaaaaaaaaaaaaa", false, None),
        (
            "/aaaaaaaaaaaaaaaaaaaa",
            false,
            Some(BadPath::TooLong { bytes: 21, limit: 20 }),
        ),
        ("/a/b/cccc-", true, None),
        (
            "/a/b/ccccc-",
            true,
            Some(BadPath::TooLong { bytes: 21, limit: 20 }),
        ),
        ("/", true, None),
    ] {
        let path = CreatePath::parse(text, sequential).expect("it is one");
        assert_eq!(bounds.check_creation(&path, sequential).err(), refused, "{text}");
        if !sequential {
            let path = ZPath::parse(text).expect("it is one");
            assert_eq!(bounds.check(&path).err(), refused, "{text}");
        }
    }
}

#[test]
fn a_path_is_short_up_to_what_every_version_knows() {
    let deep = "/a".repeat(SHORT_PATH_DEPTH);
    let long = alloc::format!("/{}", "a".repeat(SHORT_PATH_BYTES - 1));
    for (text, short, with_digits) in [
        ("/", true, true),
        (&*deep, true, true),
        (&*alloc::format!("{deep}/b"), false, false),
        (&*long, true, false),
        (&long[..SHORT_PATH_BYTES - SEQUENCE_DIGITS], true, true),
        (&*alloc::format!("{long}a"), false, false),
    ] {
        assert_eq!(ZPath::parse(text).expect("it is one").is_short(), short, "{text}");
        let create = |sequential| {
            CreatePath::parse(text, sequential)
                .expect("it is one")
                .is_short(sequential)
        };
        assert_eq!((create(false), create(true)), (short, with_digits), "{text}");
    }
}

#[test]
fn a_path_may_be_as_long_as_a_packet_and_a_lock_name_may_not() {
    let text = "/a".repeat(MAX_PATH_BYTES / 2);
    let path = ZPath::parse(&text).expect("it has the greatest length");
    assert_eq!(path.depth(), MAX_PATH_DEPTH);
    let longer = alloc::format!("{text}a");
    let too_long = BadPath::TooLong {
        bytes: MAX_PATH_BYTES + 1,
        limit: MAX_PATH_BYTES,
    };
    assert_eq!(ZPath::parse(&longer), Err(too_long.clone()));
    assert_eq!(path.parent().expect("it has one").join("aa"), Err(too_long));
    // One component of a lock's path is that of all locks, and one is left for contenders.
    let name = |depth| {
        ["a"; SHORT_PATH_DEPTH]
            .iter()
            .take(depth)
            .copied()
            .collect::<Vec<_>>()
            .join("/")
    };
    let lock = LockName::parse(&name(SHORT_PATH_DEPTH - 1)).expect("it is one");
    let too_deep = Err(BadPath::TooDeep {
        limit: SHORT_PATH_DEPTH,
    });
    let contender = |lock: LockName| lock.contender(alloc::format!("{}/c", lock.znode()));
    assert_eq!(contender(lock), too_deep);
    let lock = LockName::parse(&name(SHORT_PATH_DEPTH - 2)).expect("it is one");
    assert!(contender(lock).is_ok());
    assert_eq!(
        LockName::parse(&name(SHORT_PATH_DEPTH)),
        Err(BadPath::TooDeep {
            limit: SHORT_PATH_DEPTH,
        })
    );
    assert_eq!(
        LockName::of_parent(&ZPath::parse(&alloc::format!("/locks/{}", name(32))).expect("it is one")),
        None
    );
}
