//! Bounded tables: the state never exceeds its documented limits, whatever the clients do.

use znode_store::{MAX_REMEMBERED_REQUESTS, MAX_SESSIONLESS_REQUESTS, Store};

use super::Check;

/// Checker of the tables' sizes.
pub struct BoundedTables;

impl BoundedTables {
    /// Checks the state after a command.
    pub fn check(&self, store: &Store) -> Check {
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
        false => Err(format!("{count} {what} exceed the limit of {limit}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_above_its_limit_is_a_violation() {
        assert_eq!(bounded("things", 2, 2), Ok(()));
        assert!(bounded("things", 3, 2).is_err());
    }
}
