//! Checks of the files and directories that a configuration names.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use transport_security::{ClientCertificates, EXPIRY_WARNING, PeerTls, ServerTls, TlsError, TlsFiles};

use super::Findings;
use crate::config::ServeConfig;
use crate::transport::TlsConfig;

/// Checks all files and directories.
pub(super) fn check_all(config: &ServeConfig, findings: &mut Findings) {
    directory("data_dir", &config.node.raft.data_dir, findings);
    space(config, findings);
    if let Some(pid_file) = &config.pid_file {
        match pid_file.exists() {
            true if access(pid_file, AccessFlags::W_OK).is_err() => {
                findings.error("pid_file", format!("{} is not writable", pid_file.display()));
            }
            true => {}
            false => {
                let dir = pid_file.parent().filter(|dir| !dir.as_os_str().is_empty());
                let dir = dir.unwrap_or(Path::new("."));
                // A node creates its data directory first.
                if !dir.is_dir() {
                    findings.error(
                        "pid_file",
                        format!("the directory {} does not exist", dir.display()),
                    );
                } else if let Err(error) = access(dir, AccessFlags::W_OK | AccessFlags::X_OK) {
                    let fact = format!(
                        "cannot create {} in {}: {error}",
                        pid_file.display(),
                        dir.display()
                    );
                    findings.error("pid_file", fact);
                }
            }
        }
    }
    if let Some(tls) = &config.tls {
        certificates(config, tls, findings);
    }
}

/// Checks that a directory exists and is writable, or can be created.
fn directory(setting: &str, path: &Path, findings: &mut Findings) {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    if path.exists() && !path.is_dir() {
        return findings.error(setting, format!("{} is not a directory", path.display()));
    }
    let Some(nearest) = nearest(path) else {
        return findings.error(setting, format!("no parent of {} exists", path.display()));
    };
    if let Err(error) = access(
        &nearest,
        AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK,
    ) {
        let what = match nearest == path {
            true => "is not writable".to_owned(),
            false => format!("does not exist and cannot be created in {}", nearest.display()),
        };
        findings.error(setting, format!("{} {what}: {}", path.display(), error.desc()));
    }
}

/// Returns the directory, or the lowest existing one above it.
fn nearest(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .map(|path| match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        })
        .find(|path| path.is_dir())
        .map(Path::to_owned)
}

/// Warns if the disk would count as nearly full from the start.
fn space(config: &ServeConfig, findings: &mut Findings) {
    let Some(nearest) = nearest(&config.node.raft.data_dir) else {
        return;
    };
    match statvfs(&nearest) {
        Ok(about) => {
            let free = about.blocks_available().saturating_mul(about.fragment_size());
            let low = config.node.raft.disk.low_water_bytes;
            if free < low {
                let fact = format!(
                    "the disk of {} has {free} free bytes and counts as nearly full",
                    nearest.display()
                );
                findings.warn("disk.low_water_bytes", fact);
            }
        }
        Err(error) => findings.warn("data_dir", format!("{}: {error}", nearest.display())),
    }
}

/// Reads the certificates as a start does, each use separately, so that all errors are reported.
fn certificates(config: &ServeConfig, tls: &TlsConfig, findings: &mut Findings) {
    let files = &tls.files;
    if !readable(tls, findings) {
        return;
    }
    let clients = ServerTls::new(
        "clients",
        &files.certificate,
        &files.key,
        tls.clients.clone(),
        &[],
        tls.zookeeper_oldest,
        tls.handshakes,
    );
    let peer_files = tls.peers.as_ref().unwrap_or(files);
    let node = &config.node;
    let peers = PeerTls::new(peer_files, &node.raft.cluster, node.raft.node_id, tls.handshakes);
    let prefix = if tls.peers.is_some() { "peer_" } else { "" };
    let mut reported = Vec::new();
    let mut refuse = |error: TlsError, files: &TlsFiles, prefix: &str, findings: &mut Findings| {
        let text = error.to_string();
        if !reported.contains(&text) {
            findings.error(&setting_of(&text, files, prefix), text.clone());
            reported.push(text);
        }
    };
    match clients {
        Err(error) => refuse(error, files, "", findings),
        Ok(clients) => {
            expiry("tls.certificate", clients.reloadable().not_after(), findings);
            check_certificate_host(config, &clients.hosts(), findings);
        }
    }
    match peers {
        Err(error) => refuse(error, peer_files, prefix, findings),
        Ok(peers) if tls.peers.is_some() => {
            expiry("tls.peer_certificate", peers.reloadable().not_after(), findings);
        }
        Ok(_) => {}
    }
}

/// Returns whether all files can be read, and reports the others.
fn readable(tls: &TlsConfig, findings: &mut Findings) -> bool {
    let of = |prefix: &str, files: &TlsFiles| {
        let files = [
            ("certificate", files.certificate.clone()),
            ("key", files.key.clone()),
            ("ca", files.ca.clone()),
        ];
        files.map(|(key, path)| (format!("tls.{prefix}{key}"), path))
    };
    let mut all = Vec::from(of("", &tls.files));
    all.extend(tls.peers.iter().flat_map(|files| of("peer_", files)));
    if let ClientCertificates::Optional(ca) | ClientCertificates::Required(ca) = &tls.clients
        && *ca != tls.files.ca
    {
        all.push(("tls.client_ca".to_owned(), ca.clone()));
    }
    let mut are = true;
    for (setting, path) in all {
        if let Err(error) = fs::File::open(&path) {
            findings.error(&setting, format!("{}: {error}", path.display()));
            are = false;
        }
    }
    are
}

/// Returns the setting that names the file of an error.
fn setting_of(error: &str, files: &TlsFiles, prefix: &str) -> String {
    let is_about = |path: &Path| error.contains(&path.display().to_string());
    let key = match () {
        () if is_about(&files.certificate) => "certificate",
        () if is_about(&files.key) => "key",
        () if is_about(&files.ca) => "ca",
        () => "client_ca",
    };
    format!("tls.{prefix}{key}")
}

fn expiry(setting: &str, not_after: Option<SystemTime>, findings: &mut Findings) {
    let Some(not_after) = not_after else { return };
    let end = humantime::format_rfc3339_seconds(not_after);
    match not_after.duration_since(SystemTime::now()) {
        Err(_) => findings.error(setting, format!("the certificate expired at {end}")),
        Ok(left) if left < EXPIRY_WARNING => {
            findings.warn(setting, format!("the certificate expires soon, at {end}"));
        }
        Ok(_) => {}
    }
}

/// Warns if the certificate lacks the host name by which clients call this node.
fn check_certificate_host(config: &ServeConfig, hosts: &[String], findings: &mut Findings) {
    let Some(own) = config.node.raft.members.get(&config.node.raft.node_id) else {
        return;
    };
    let host = own.http.rsplit_once(':').map_or("", |(host, _)| host);
    let is_name = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_err();
    let fits = |listed: &String| match listed.strip_prefix("*.") {
        Some(rest) => host
            .split_once('.')
            .is_some_and(|(_, behind)| behind.eq_ignore_ascii_case(rest)),
        None => listed.eq_ignore_ascii_case(host),
    };
    if is_name && !hosts.iter().any(fits) {
        let fact = format!(
            "the certificate lacks the name {host:?}, by which clients call this node (members.{}.http)",
            config.node.raft.node_id
        );
        findings.warn("tls.certificate", fact);
    }
}
