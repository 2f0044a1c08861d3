//! A real browser, controlled by the DevTools protocol over a pipe: headless Chromium with a temporary
//! profile, which reaches only this machine. Independent of the page.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::dev_tools::DevTools;

/// Environment variable: `required` makes a missing browser an error; otherwise the tests print a message and
/// pass.
const REQUIRED_VARIABLE: &str = "LOCKGATE_BROWSER";

/// Names of the program in Debian's package and elsewhere.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Time limit of every condition, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(40);

/// Shell command that connects the child's standard input and output to descriptors 3 and 4, which the
/// protocol uses.
const TO_THE_PIPE: &str = "exec \"$@\" 3<&0 4>&1 0</dev/null 1>&2";

const OPTIONS: [&str; 14] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-extensions",
    "--force-color-profile=srgb",
    "--ignore-certificate-errors",
    // No name resolves, so the browser contacts no other host.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// Browser with one page. It ends when this is dropped.
pub struct Browser {
    child: Child,
    dev_tools: Arc<DevTools>,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser; returns `None` and prints a message if this machine has none.
    pub async fn start() -> Option<Self> {
        let Some(program) = PROGRAMS.iter().find(|program| is_there(program)) else {
            let required = std::env::var(REQUIRED_VARIABLE).is_ok_and(|value| value == "required");
            assert!(!required, "this machine has no chromium");
            println!("skipped: this machine has no chromium (Debian's package chromium)");
            return None;
        };
        let profile = TempDir::new().expect("a directory for the profile");
        let mut command = Command::new("sh");
        command.args(["-c", TO_THE_PIPE, "sh", program]).args(OPTIONS);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        // A killed browser leaves its temporary files behind; they go with the profile.
        command.env("TMPDIR", profile.path());
        if geteuid().is_root() {
            command.arg("--no-sandbox");
        }
        let mut child = command
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .expect("the browser can be run");
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let dev_tools = DevTools::open(to.expect("it is a pipe"), from.expect("it is a pipe"));
        let made = dev_tools
            .ask(None, "Target.createTarget", json!({"url": "about:blank"}))
            .await;
        let attach = json!({"targetId": made["targetId"], "flatten": true});
        let attached = dev_tools.ask(None, "Target.attachToTarget", attach).await;
        let browser = Self {
            child,
            dev_tools,
            session: attached["sessionId"].as_str().expect("a session").to_owned(),
            _profile: profile,
        };
        for domain in ["Page", "Runtime", "Log"] {
            browser.send_command(&format!("{domain}.enable"), json!({})).await;
        }
        browser.size(1280, 800).await;
        Some(browser)
    }

    async fn send_command(&self, method: &str, parameters: Value) -> Value {
        self.dev_tools.ask(Some(&self.session), method, parameters).await
    }

    /// Sets the size of the window.
    pub async fn size(&self, width: u32, height: u32) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.send_command("Emulation.setDeviceMetricsOverride", metrics)
            .await;
    }

    /// Sets the preferred colour scheme: `light` or `dark`.
    pub async fn scheme(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.send_command("Emulation.setEmulatedMedia", features).await;
    }

    /// Navigates to an address, possibly within the same page.
    pub async fn go(&self, url: &str) {
        let gone = self.send_command("Page.navigate", json!({"url": url})).await;
        assert!(gone["errorText"].is_null(), "{url}: {gone}");
    }

    /// Reloads the current page.
    pub async fn reload(&self) {
        self.send_command("Page.reload", json!({})).await;
    }

    /// Evaluates an expression in the page.
    pub async fn js(&self, expression: &str) -> Value {
        self.try_js(expression)
            .await
            .unwrap_or_else(|problem| panic!("{expression}: {problem}"))
    }

    async fn try_js(&self, expression: &str) -> Result<Value, String> {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.send_command("Runtime.evaluate", asked).await;
        match (answer.get("exceptionDetails"), answer.get("message")) {
            (None, None) => Ok(answer["result"]["value"].clone()),
            // A page that is being left answers nothing.
            (problem, message) => Err(format!("{problem:?} {message:?}")),
        }
    }

    /// Waits until an expression is true.
    pub async fn until(&self, expression: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while self.try_js(expression).await != Ok(Value::Bool(true)) {
            if Instant::now() >= deadline {
                let body = self.try_js("document.body.innerText").await;
                panic!(
                    "timeout while waiting for {expression}: {body:?}, {:?}",
                    self.page_errors()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until an element that the selector matches contains a text.
    pub async fn until_text(&self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!(
            "[...document.querySelectorAll({selector})].some((it) => it.innerText.includes({text}))"
        ))
        .await;
    }

    /// Waits until no element that the selector matches contains a text.
    pub async fn until_no_text(&self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!(
            "![...document.querySelectorAll({selector})].some((it) => it.innerText.includes({text}))"
        ))
        .await;
    }

    /// Clicks into the middle of the element that matches the selector, and contains the text unless that is
    /// empty.
    pub async fn click(&self, selector: &str, text: &str) {
        let find = format!(
            "[...document.querySelectorAll({})].find((it) => it.checkVisibility() && it.innerText.includes({}) && !it.disabled)",
            json!(selector),
            json!(text)
        );
        self.until(&format!("Boolean({find})")).await;
        let place = self
            .js(&format!(
                "(() => {{ const it = {find}; it.scrollIntoView({{block: 'nearest'}}); const at = it.getBoundingClientRect(); \
                 return [at.x + at.width / 2, at.y + at.height / 2]; }})()"
            ))
            .await;
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.send_command("Input.dispatchMouseEvent", event).await;
        }
    }

    /// Types into the field that the selector matches.
    pub async fn write(&self, selector: &str, text: &str) {
        self.click(selector, "").await;
        self.js(&format!("document.querySelector({}).select()", json!(selector)))
            .await;
        self.send_command("Input.insertText", json!({"text": text})).await;
    }

    /// Presses a key, such as `Enter`.
    pub async fn press(&self, key: &str) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code(key)});
            self.send_command("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Saves a screenshot.
    pub async fn picture(&self, file: &Path) {
        use base64::Engine;
        let shot = self
            .send_command("Page.captureScreenshot", json!({"format": "png"}))
            .await;
        let data = shot["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(data)
            .expect("the screenshot is base64");
        std::fs::write(file, bytes).expect("the picture can be written");
    }

    /// Returns the page's exceptions, console errors and policy violations.
    pub fn page_errors(&self) -> Vec<String> {
        self.dev_tools.page_errors.lock().clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser has children of its own. An error means that they have already ended.
        if let Some(id) = self.child.id() {
            let _ = killpg(Pid::from_raw(id as i32), Signal::SIGKILL);
        }
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn code(key: &str) -> u32 {
    match key {
        "Enter" => 13,
        "Escape" => 27,
        "ArrowUp" => 38,
        "ArrowDown" => 40,
        other => other
            .bytes()
            .next()
            .map_or(0, |byte| byte.to_ascii_uppercase().into()),
    }
}
