//! Exactly once: a request that is sent again under its id, to whatever node, is carried out once. The requests here create
//! sequential znodes, so what was carried out twice would have two names.

use std::collections::{BTreeMap, BTreeSet};

use znode_store::ZPath;

use super::Check;

/// What was asked, and what it created.
#[derive(Default)]
pub struct ExactlyOnce {
    asked: BTreeSet<String>,
    created: BTreeMap<String, ZPath>,
    by_path: BTreeMap<ZPath, String>,
}

impl ExactlyOnce {
    /// A request is sent for the first time.
    pub fn asked(&mut self, id: &str) {
        self.asked.insert(id.to_owned());
    }

    /// It is acknowledged.
    pub fn created(&mut self, id: &str, path: &ZPath) -> Check {
        if let Some(before) = self.created.insert(id.to_owned(), path.clone())
            && before != *path
        {
            return Err(format!("the request {id} created {before}, and {path} too"));
        }
        match self.by_path.insert(path.clone(), id.to_owned()) {
            Some(other) if other != id => Err(format!(
                "the requests {other} and {id} were both told that they created {path}"
            )),
            _ => Ok(()),
        }
    }

    /// All such znodes that there are at the end.
    pub fn at_end(&self, there: &BTreeSet<ZPath>) -> Check {
        if let Some(lost) = self.by_path.keys().find(|path| !there.contains(path)) {
            return Err(format!("{lost} was acknowledged and is not there"));
        }
        // Who was not told may have been carried out, but once.
        let (there, asked) = (there.len(), self.asked.len());
        match there <= asked {
            true => Ok(()),
            false => Err(format!("{asked} requests have created {there} znodes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_twice_or_lost_is_noticed() {
        let path = |text| ZPath::parse(text).expect("a path");
        let mut once = ExactlyOnce::default();
        once.asked("a");
        assert_eq!(once.created("a", &path("/x1")), Ok(()));
        assert_eq!(once.created("a", &path("/x1")), Ok(()), "told again");
        assert_eq!(once.at_end(&BTreeSet::from([path("/x1")])), Ok(()));
        assert!(once.at_end(&BTreeSet::new()).is_err());
        assert!(once.at_end(&BTreeSet::from([path("/x1"), path("/x2")])).is_err());
        assert!(once.created("a", &path("/x2")).is_err());
        assert!(once.created("b", &path("/x1")).is_err());
    }
}
