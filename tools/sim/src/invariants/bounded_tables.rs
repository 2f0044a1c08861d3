//! Bounded tables: whatever clients do, the state keeps no more than it says.

use znode_store::{MAX_REMEMBERED_REQUESTS, MAX_SESSIONLESS_REQUESTS, Store};

use super::Check;

/// Looks at what could grow.
pub struct BoundedTables;

impl BoundedTables {
    /// The state after a command.
    pub fn look(&self, store: &Store) -> Check {
        let (of_session, sessionless) = store.remembered_requests();
        bounded(
            "remembered requests of a session",
            of_session,
            MAX_REMEMBERED_REQUESTS,
        )?;
        bounded(
            "remembered requests without a session",
            sessionless,
            MAX_SESSIONLESS_REQUESTS,
        )
    }
}

fn bounded(what: &str, count: usize, limit: usize) -> Check {
    match count <= limit {
        true => Ok(()),
        false => Err(format!("there are {count} {what}, and {limit} are the most")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_grows_is_noticed() {
        assert_eq!(bounded("things", 2, 2), Ok(()));
        assert!(bounded("things", 3, 2).is_err());
    }
}
