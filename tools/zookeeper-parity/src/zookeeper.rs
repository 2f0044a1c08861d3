//! ZooKeeper's side: programs over real connections to a real server.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};

use crate::program::{Relative, Step, auth};
use crate::server::SUPER_CREDENTIALS;
use crate::side::Side;
use crate::trace::{Effect, StepResult};
use crate::wire::{
    Accepted, ConnectOutcome, Connection, ErrorCode, Notification, Outcome, Reaction, Request, Response,
};

/// Connection with all permissions, which reads the znodes that programs leave, and deletes them.
pub struct Observer(Connection);

impl Observer {
    /// Connects to a server with a session of its own.
    pub fn connect(server: SocketAddr) -> Result<Self> {
        let ConnectOutcome::Accepted(mut connection, _) = Connection::open(server, None, 0)? else {
            bail!("the server rejected a new session")
        };
        expect_success(connection.call(&auth("digest", SUPER_CREDENTIALS))?)?;
        Ok(Self(connection))
    }

    /// Deletes paths, children before parents, that are no longer in use.
    pub fn sweep(&mut self, paths: &[String]) -> Result<()> {
        let mut deepest_first = paths.iter().collect::<Vec<_>>();
        deepest_first.sort_by_key(|path| std::cmp::Reverse(path.matches('/').count()));
        let requests = deepest_first
            .into_iter()
            .map(|path| Request::Delete {
                path: path.clone(),
                version: -1,
            })
            .collect::<Vec<_>>();
        for outcome in self.call_all(&requests)? {
            if let Err(code) = outcome {
                bail!("a znode of a finished program could not be deleted: {code}");
            }
        }
        Ok(())
    }

    fn call_all(&mut self, requests: &[Request]) -> Result<Vec<Outcome>> {
        let xids = requests
            .iter()
            .map(|request| self.0.send(request))
            .collect::<Result<Vec<_>>>()?;
        let mut outcomes = Vec::new();
        for (request, xid) in requests.iter().zip(xids) {
            let Reaction::Reply { outcome, .. } = self.0.receive(request, xid)?.reaction else {
                bail!("the server closed the observer's connection")
            };
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }
}

fn expect_success(answer: Response) -> Result<()> {
    match answer.reaction {
        Reaction::Reply { outcome: Ok(_), .. } => Ok(()),
        other => bail!("the observer was not authenticated: {other:?}"),
    }
}

/// Sessions of one program on a server.
pub struct ZooKeeper<'a> {
    server: SocketAddr,
    observer: &'a mut Observer,
    sessions: Vec<Option<Session>>,
}

struct Session {
    accepted: Accepted,
    connection: Option<Connection>,
    /// Zxids of all replies so far.
    seen: Vec<i64>,
    ended: bool,
}

impl<'a> ZooKeeper<'a> {
    /// Creates the side for one program with this number of sessions.
    pub fn new(server: SocketAddr, observer: &'a mut Observer, sessions: usize) -> Self {
        Self {
            server,
            observer,
            sessions: (0..sessions).map(|_| None).collect(),
        }
    }

    fn open(&mut self, session: usize) -> Result<Effect> {
        if self.sessions[session]
            .as_ref()
            .is_some_and(|session| !session.ended)
        {
            return Ok(Effect::Skipped);
        }
        let ConnectOutcome::Accepted(connection, accepted) = Connection::open(self.server, None, 0)? else {
            bail!("the server rejected a new session")
        };
        let (session_id, timeout_ms) = (accepted.session_id, accepted.timeout_ms);
        self.sessions[session] = Some(Session {
            accepted,
            connection: Some(connection),
            seen: Vec::new(),
            ended: false,
        });
        Ok(Effect::Opened {
            session_id,
            timeout_ms,
        })
    }

    fn resume(&mut self, session: usize, wrong_password: bool) -> Result<Effect> {
        let Some(session) = &mut self.sessions[session] else {
            return Ok(Effect::Skipped);
        };
        let older = session.connection.take();
        if wrong_password && older.is_some() {
            session.connection = older;
            return Ok(Effect::Skipped);
        }
        let mut password = session.accepted.password;
        if wrong_password {
            password[0] ^= 1;
        }
        let last_zxid_seen = session.seen.iter().copied().max().unwrap_or(0);
        let claim = (session.accepted.session_id, password);
        let resumed = Connection::open(self.server, Some(claim), last_zxid_seen)?;
        if let Some(mut older) = older {
            ensure!(
                older.is_closed()?,
                "the server sent something on a connection that had lost its session"
            );
        }
        match resumed {
            ConnectOutcome::Refused => Ok(Effect::Refused),
            ConnectOutcome::Accepted(connection, accepted) => {
                session.connection = Some(connection);
                let Accepted {
                    session_id,
                    timeout_ms,
                    ..
                } = accepted;
                Ok(Effect::Resumed {
                    session_id,
                    timeout_ms,
                })
            }
        }
    }

    fn drop_connection(&mut self, session: usize) -> Result<Effect> {
        match self.sessions[session]
            .as_mut()
            .and_then(|session| session.connection.take())
        {
            Some(connection) => connection.disconnect().map(|()| Effect::Dropped),
            None => Ok(Effect::Skipped),
        }
    }

    fn call(&mut self, number: usize, request: &Request) -> Result<(Effect, Vec<Notification>)> {
        let Some(session) = &mut self.sessions[number] else {
            return Ok((Effect::Skipped, Vec::new()));
        };
        let Some(connection) = &mut session.connection else {
            return Ok((Effect::Skipped, Vec::new()));
        };
        let Response {
            notifications,
            reaction,
        } = connection.call(request)?;
        let Reaction::Reply { zxid, outcome } = reaction else {
            session.connection = None;
            return Ok((Effect::Closed, notifications));
        };
        session.seen.push(zxid);
        let closed = closes_connection(request, &outcome);
        if closed {
            ensure!(
                connection.is_closed()?,
                "something arrived after the reply that ends a connection"
            );
            session.connection = None;
            session.ended = *request == Request::CloseSession;
        }
        Ok((
            Effect::Replied {
                zxid,
                outcome,
                closed,
            },
            notifications,
        ))
    }

    fn rewatched(&self, number: usize, relative: Relative) -> i64 {
        let seen = self.sessions[number]
            .as_ref()
            .map_or(&[][..], |session| &session.seen);
        relative_zxid(seen, relative)
    }

    fn end(&mut self, number: usize) -> Result<(Effect, Vec<Notification>)> {
        let Some(session) = &self.sessions[number] else {
            return Ok((Effect::Skipped, Vec::new()));
        };
        if session.ended {
            return Ok((Effect::Skipped, Vec::new()));
        }
        if session.connection.is_none() {
            let resumed = self.resume(number, false)?;
            ensure!(
                matches!(resumed, Effect::Resumed { .. }),
                "a session that was not closed no longer exists"
            );
        }
        self.call(number, &Request::CloseSession)
    }

    /// Reads the notifications of other sessions. The reply to a ping follows everything that was sent before
    /// it.
    fn receive_notifications(&mut self, acting: usize) -> Result<Vec<(usize, Vec<Notification>)>> {
        let mut pings = Vec::new();
        for (number, session) in self
            .sessions
            .iter_mut()
            .enumerate()
            .filter(|(number, _)| *number != acting)
        {
            if let Some(connection) = session.as_mut().and_then(|session| session.connection.as_mut()) {
                pings.push((number, connection.send(&Request::Ping)?));
            }
        }
        let mut received = Vec::new();
        for (number, xid) in pings {
            let connection = self.sessions[number]
                .as_mut()
                .and_then(|session| session.connection.as_mut());
            let connection = connection.expect("a ping was sent on this connection");
            let answer = connection.receive(&Request::Ping, xid)?;
            ensure!(
                matches!(answer.reaction, Reaction::Reply { .. }),
                "an idle connection was closed"
            );
            if !answer.notifications.is_empty() {
                received.push((number, answer.notifications));
            }
        }
        Ok(received)
    }
}

impl Side for ZooKeeper<'_> {
    fn step(&mut self, step: &Step) -> Result<StepResult> {
        let acting = step.session();
        let (effect, notifications) = match step {
            Step::Open { session } => (self.open(*session)?, Vec::new()),
            Step::Drop { session } => (self.drop_connection(*session)?, Vec::new()),
            Step::Resume {
                session,
                wrong_password,
            } => (self.resume(*session, *wrong_password)?, Vec::new()),
            Step::Call { session, request } => self.call(*session, request)?,
            Step::Rewatch {
                session,
                relative,
                watches,
            } => {
                let relative_zxid = self.rewatched(*session, *relative);
                self.call(
                    *session,
                    &Request::SetWatches2 {
                        relative_zxid,
                        watches: watches.clone(),
                    },
                )?
            }
            Step::Close { session } => self.call(*session, &Request::CloseSession)?,
            Step::End { session } => self.end(*session)?,
        };
        let mut received = Vec::new();
        if !notifications.is_empty() {
            received.push((acting, notifications));
        }
        if may_fire_watches(step) {
            received.extend(self.receive_notifications(acting)?);
        }
        Ok(StepResult { effect, received })
    }

    fn read_all(&mut self, requests: &[Request]) -> Result<Vec<Outcome>> {
        self.observer.call_all(requests)
    }
}

/// Returns the zxid of one of a session's replies; the oldest one if there were fewer, 0 if there was none.
pub fn relative_zxid(seen: &[i64], relative: Relative) -> i64 {
    match relative {
        Relative::Zero => 0,
        Relative::Future => i64::MAX,
        Relative::Reply(before) => match seen.len().checked_sub(before + 1) {
            Some(index) => seen[index],
            None => seen.first().copied().unwrap_or(0),
        },
    }
}

/// Returns whether a server closes a connection after a reply.
pub fn closes_connection(request: &Request, outcome: &Outcome) -> bool {
    match outcome {
        Err(ErrorCode::UNIMPLEMENTED) => true,
        Err(_) => matches!(request, Request::CloseSession | Request::Auth { .. }),
        Ok(_) => matches!(request, Request::CloseSession),
    }
}

/// Returns whether a step may notify other sessions. To ping them after every read would double the time.
fn may_fire_watches(step: &Step) -> bool {
    match step {
        Step::Close { .. } | Step::End { .. } => true,
        Step::Call { request, .. } => matches!(
            request,
            Request::Create { .. }
                | Request::Delete { .. }
                | Request::SetData { .. }
                | Request::SetAcl { .. }
                | Request::Multi(_)
                | Request::CloseSession
        ),
        _ => false,
    }
}

impl Drop for ZooKeeper<'_> {
    /// Ends the sessions of a program that did not complete, so that their ephemeral znodes and watches do
    /// not affect the next one. A server that no longer answers has lost them anyway.
    fn drop(&mut self) {
        for number in 0..self.sessions.len() {
            drop(self.end(number).context("end a session"));
        }
    }
}
