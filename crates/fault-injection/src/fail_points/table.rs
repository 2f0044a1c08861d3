//! Table of all fail points. A test compares this table with the sources, and the run in
//! `lockgate/tests/fail_points` goes through all of it, so that none is forgotten.

/// Role of the node that takes a step, and the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// By the leader and by followers.
    Any,
    /// By the leader alone.
    Leader,
    /// By a follower alone, or by a leader that becomes one just then.
    Follower,
    /// At every start of a node.
    Start,
    /// At the first start of a node.
    Birth,
}

/// Fail point.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// `area::step`.
    pub name: &'static str,
    /// `true` if the step can fail. The others can only panic or take long.
    pub fails: bool,
    /// Role of the node that takes the step.
    pub side: Side,
}

/// Returns the point with this name.
pub fn find(name: &str) -> Option<&'static Point> {
    POINTS.iter().find(|point| point.name == name)
}

const fn can_fail(name: &'static str, side: Side) -> Point {
    Point {
        name,
        fails: true,
        side,
    }
}

/// For steps that answer no error: a command that is applied has no way to fail, and a task that has nobody to tell.
const fn cannot_fail(name: &'static str, side: Side) -> Point {
    Point {
        name,
        fails: false,
        side,
    }
}

use Side::{Any, Birth, Follower, Leader, Start};

/// All of them.
pub const POINTS: &[Point] = &[
    can_fail("start::before_identity", Start),
    can_fail("start::before_snapshots", Start),
    can_fail("start::before_log", Start),
    can_fail("start::after_log", Start),
    can_fail("witness::before_start", Start),
    can_fail("identity::before_write", Birth),
    can_fail("identity::before_rename", Birth),
    can_fail("identity::after_rename", Birth),
    can_fail("identity::after_dir_sync", Birth),
    can_fail("log::before_append", Any),
    can_fail("log::after_truncate", Follower),
    can_fail("log::after_purge", Any),
    can_fail("log::before_vote", Any),
    can_fail("log::before_truncate", Follower),
    can_fail("log::before_purge", Any),
    can_fail("log::before_write", Any),
    can_fail("log::after_write", Any),
    can_fail("log::before_sync", Any),
    can_fail("log::after_sync", Any),
    can_fail("log::before_roll", Any),
    can_fail("log::after_roll", Any),
    can_fail("vote::before_send", Follower),
    can_fail("vote::after_receive", Any),
    can_fail("vote::before_save", Any),
    can_fail("vote::after_save", Any),
    can_fail("segment::before_create", Any),
    can_fail("segment::after_create", Any),
    can_fail("segment::after_fill", Any),
    can_fail("segment::before_write", Any),
    can_fail("segment::before_sync", Any),
    can_fail("segment::before_rename", Any),
    can_fail("segment::after_rename", Any),
    can_fail("segment::after_dir_sync", Any),
    can_fail("segment::before_remove", Any),
    can_fail("segment::after_remove", Any),
    cannot_fail("snapshot::before_freeze", Any),
    can_fail("snapshot::before_portion", Any),
    can_fail("snapshot::before_make", Any),
    can_fail("snapshot::before_tell", Any),
    can_fail("snapshot::after_tell", Any),
    can_fail("snapshot::before_verify", Any),
    can_fail("snapshot::before_rename", Any),
    can_fail("snapshot::after_rename", Any),
    can_fail("snapshot::after_dir_sync", Any),
    can_fail("snapshot::before_remove", Any),
    can_fail("snapshot::after_remove", Any),
    can_fail("snapshot::before_create", Any),
    can_fail("snapshot::before_write", Any),
    can_fail("snapshot::after_write", Any),
    can_fail("snapshot::before_sync", Any),
    can_fail("snapshot::after_sync", Any),
    cannot_fail("apply::before_entry", Any),
    cannot_fail("apply::after_entry", Any),
    cannot_fail("apply::after_command", Any),
    cannot_fail("apply::before_answers", Any),
    cannot_fail("apply::after_answers", Any),
    cannot_fail("apply::before_open_session", Any),
    cannot_fail("apply::before_close_session", Any),
    cannot_fail("apply::before_reconnect", Any),
    cannot_fail("apply::before_expire_sessions", Any),
    cannot_fail("apply::before_multi", Any),
    cannot_fail("apply::before_sweep", Any),
    cannot_fail("apply::before_set_limits", Any),
    cannot_fail("apply::before_acquire", Any),
    cannot_fail("apply::before_release", Any),
    cannot_fail("apply::before_withdraw", Any),
    cannot_fail("apply::before_break", Any),
    cannot_fail("apply::before_downgrade", Any),
    cannot_fail("apply::before_upgrade", Any),
    cannot_fail("apply::before_acquire_many", Any),
    cannot_fail("apply::before_release_many", Any),
    cannot_fail("apply::before_withdraw_many", Any),
    cannot_fail("apply::before_configure", Any),
    cannot_fail("apply::before_revoke", Any),
    cannot_fail("apply::before_answer_revoke", Any),
    cannot_fail("apply::before_count_delays", Any),
    cannot_fail("apply::before_renew_lease", Any),
    cannot_fail("apply::before_release_lease", Any),
    cannot_fail("apply::before_end_holds", Any),
    cannot_fail("apply::before_create", Any),
    cannot_fail("apply::before_delete", Any),
    cannot_fail("apply::before_delete_recursive", Any),
    cannot_fail("apply::before_set", Any),
    cannot_fail("apply::before_set_acl", Any),
    cannot_fail("watch::before_dispatch", Any),
    cannot_fail("watch::after_dispatch", Any),
    cannot_fail("submit::before_send", Any),
    cannot_fail("propose::before_write", Leader),
    cannot_fail("propose::after_write", Leader),
    can_fail("append::after_answer", Leader),
    can_fail("append::before_send", Leader),
    can_fail("append::after_send", Leader),
    can_fail("append::before_reply", Follower),
    can_fail("append::after_reply", Follower),
    can_fail("append::after_receive", Follower),
    can_fail("install::before_restore", Follower),
    can_fail("install::before_replace", Follower),
    can_fail("install::after_replace", Follower),
    can_fail("install::before_send", Leader),
    can_fail("install::before_send_chunk", Leader),
    can_fail("install::after_send", Leader),
    can_fail("install::after_head", Follower),
    can_fail("install::before_reply", Follower),
    can_fail("install::before_chunk", Follower),
    can_fail("install::before_finish", Follower),
    can_fail("install::after_finish", Follower),
    can_fail("heartbeat::before_send", Leader),
    can_fail("heartbeat::after_receive", Follower),
    can_fail("pre_vote::before_send", Follower),
    can_fail("pre_vote::after_receive", Follower),
    can_fail("transfer::before_send", Leader),
    can_fail("transfer::after_receive", Follower),
    can_fail("forward::before_send", Follower),
    can_fail("forward::after_receive", Leader),
    can_fail("touch::before_send", Follower),
    can_fail("touch::after_receive", Leader),
    can_fail("read_index::before_send", Follower),
    can_fail("read_index::after_receive", Leader),
    can_fail("disk::before_send", Leader),
    can_fail("disk::after_receive", Follower),
    can_fail("peer::before_greeting", Any),
    can_fail("peer::after_greeting", Any),
    can_fail("peer::before_reply", Any),
    can_fail("peer::after_reply", Any),
    can_fail("peer::before_connect", Any),
    can_fail("peer::after_connect", Any),
    can_fail("peer::after_ask", Any),
    can_fail("peer::after_answer", Any),
    cannot_fail("confirm::before_proof", Leader),
    cannot_fail("confirm::after_proof", Leader),
    cannot_fail("session::before_take_up", Leader),
    cannot_fail("session::after_take_up", Leader),
    cannot_fail("session::before_expire", Leader),
    cannot_fail("session::after_expire", Leader),
    cannot_fail("session::before_record", Leader),
    cannot_fail("session::after_record", Leader),
    cannot_fail("delay::before_count", Leader),
    cannot_fail("delay::after_count", Leader),
    can_fail("http::before_answer", Any),
    can_fail("zookeeper::before_session", Any),
    can_fail("zookeeper::before_answer", Any),
];
