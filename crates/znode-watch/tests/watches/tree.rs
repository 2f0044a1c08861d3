//! Store whose changes return their events.

use znode_store::{Command, EntryContext, Event, Request, Store, ZPath, ZnodeEvent, Zxid};

pub struct Tree {
    pub store: Store,
}

/// Result of a command, with the events that may trigger watches.
pub struct Applied {
    pub text: String,
    pub zxid: Zxid,
    pub events: Vec<ZnodeEvent>,
}

impl Tree {
    pub fn new() -> Self {
        Self { store: Store::new() }
    }

    pub fn apply(&mut self, request: Request) -> Applied {
        let mut events = Vec::new();
        let entry = EntryContext { time_ms: 1, term: 1 };
        let applied = self.store.apply(&entry, request, &mut events);
        let events = events.into_iter().filter_map(|event| match event {
            Event::Znode(event) => Some(event),
            _ => None,
        });
        Applied {
            text: applied.to_string(),
            zxid: applied.zxid,
            events: events.collect(),
        }
    }

    pub fn apply_anonymous(&mut self, command: Command) -> Applied {
        self.apply(Request::anonymous(command))
    }
}

pub fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}
