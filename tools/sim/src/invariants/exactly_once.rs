//! Exactly once: a request that is repeated under its id, at any node, is executed once. The requests here
//! create sequential znodes, so a second execution would create a second name.

use std::collections::{BTreeMap, BTreeSet};

use znode_store::ZPath;

use super::Check;

/// Checker of the requests and the znodes that they created.
#[derive(Default)]
pub struct ExactlyOnce {
    asked: BTreeSet<String>,
    created: BTreeMap<String, ZPath>,
    by_path: BTreeMap<ZPath, String>,
}

impl ExactlyOnce {
    /// Records the first attempt of a request.
    pub fn note_request(&mut self, id: &str) {
        self.asked.insert(id.to_owned());
    }

    /// Records an acknowledgement.
    pub fn created(&mut self, id: &str, path: &ZPath) -> Check {
        if let Some(before) = self.created.insert(id.to_owned(), path.clone())
            && before != *path
        {
            return Err(format!("the request {id} created {before}, and {path} as well"));
        }
        match self.by_path.insert(path.clone(), id.to_owned()) {
            Some(other) if other != id => Err(format!(
                "the requests {other} and {id} were both acknowledged with {path}"
            )),
            _ => Ok(()),
        }
    }

    /// Checks the znodes that exist at the end.
    pub fn at_end(&self, there: &BTreeSet<ZPath>) -> Check {
        if let Some(lost) = self.by_path.keys().find(|path| !there.contains(path)) {
            return Err(format!("{lost} was acknowledged but does not exist"));
        }
        // A request without a response may have been executed, but at most once.
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
    fn repeated_or_lost_execution_is_a_violation() {
        let path = |text| ZPath::parse(text).expect("a path");
        let mut once = ExactlyOnce::default();
        once.note_request("a");
        assert_eq!(once.created("a", &path("/x1")), Ok(()));
        assert_eq!(once.created("a", &path("/x1")), Ok(()), "acknowledged again");
        assert_eq!(once.at_end(&BTreeSet::from([path("/x1")])), Ok(()));
        assert!(once.at_end(&BTreeSet::new()).is_err());
        assert!(once.at_end(&BTreeSet::from([path("/x1"), path("/x2")])).is_err());
        assert!(once.created("a", &path("/x2")).is_err());
        assert!(once.created("b", &path("/x1")).is_err());
    }
}
