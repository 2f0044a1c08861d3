//! The commands of scripts that bring another tree: `put PATH [DATA] [ttl=MS | container=true] [acl=ACL] [version=N] [aversion=N]
//! [ctime=MS] [mtime=MS] [creations=N]` and `remove PATH` are collected, `mirror` takes them all; `page PATH [after=PATH]
//! [count=N]` shows what is there.

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::ArgumentConsumer;
use znode_store::{Acl, Command, MirrorStep, Mirrored, MirroredKind, Store, ZPath};

use crate::script::{Output, acl, caller, data, path};

/// The steps of a command that is not complete yet.
#[derive(Default)]
pub struct Steps(Vec<MirrorStep>);

impl Steps {
    pub fn put(&mut self, mut args: ArgumentConsumer<'_>) -> Output {
        let number = |text: Option<&str>| text.map_or(Ok(0), str::parse::<u64>);
        let kind = match (args.take_key("ttl"), args.take_key("container")) {
            (None, None) => MirroredKind::Persistent,
            (None, Some(_)) => MirroredKind::Container,
            (Some(ttl), None) => MirroredKind::Ttl(ttl.parse()?),
            (Some(_), Some(_)) => return Err("one kind is enough".into()),
        };
        self.0.push(MirrorStep::Put(Mirrored {
            path: path(&mut args)?,
            data: data(args.next_pos()),
            acl: args.take_key("acl").map_or(Ok(Acl::open()), acl)?,
            kind,
            version: args.take_key("version").map_or(Ok(0), str::parse)?,
            aversion: args.take_key("aversion").map_or(Ok(0), str::parse)?,
            ctime_ms: number(args.take_key("ctime"))?,
            mtime_ms: number(args.take_key("mtime"))?,
            creations: number(args.take_key("creations"))?,
        }));
        args.reject_next()?;
        Ok(String::new())
    }

    pub fn remove(&mut self, mut args: ArgumentConsumer<'_>) -> Output {
        let path = path(&mut args)?;
        self.0.push(MirrorStep::Remove { path });
        args.reject_next()?;
        Ok(String::new())
    }

    pub fn take(&mut self) -> Command {
        Command::Mirror(std::mem::take(&mut self.0))
    }
}

/// `page`: one znode a line.
pub fn page(store: &Store, mut args: ArgumentConsumer<'_>) -> Output {
    let below = path(&mut args)?;
    let after = args.take_key("after").map(ZPath::parse).transpose()?;
    let count = args.take_key("count").map_or(Ok(100), str::parse)?;
    let caller = caller(&mut args)?;
    args.reject_next()?;
    let (page, more) = match store.seen_by(&caller).mirror_page(&below, after.as_ref(), count) {
        Ok(page) => page,
        Err(refusal) => return Ok(format!("refused: {refusal}")),
    };
    let mut output = String::new();
    for shown in page {
        let (path, data, acl) = (shown.path, shown.data, shown.acl);
        writeln!(
            output,
            "{path} {data} for {acl}, {} created: {}",
            shown.creations, shown.stat
        )?;
    }
    output += if more { "and more" } else { "and no more" };
    Ok::<_, Box<dyn Error>>(output)
}
