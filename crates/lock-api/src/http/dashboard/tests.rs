use std::collections::BTreeSet;

use super::*;

fn names_in(text: &str, before: &str, after: &str) -> BTreeSet<String> {
    let parts = text.split(before).skip(1);
    parts
        .filter_map(|part| part.split(after).next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn whatever_a_part_names_is_served_and_nothing_comes_from_elsewhere() {
    let served: BTreeSet<_> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let mut named = names_in(PAGE, "\"/dashboard/", "\"");
    for (_, kind, content) in FILES {
        if *kind == SCRIPT {
            named.extend(names_in(content, " from \"./", "\""));
        }
    }
    assert_eq!(named, served);
    for (name, _, content) in FILES.iter().chain([&("index.html", HTML, PAGE)]) {
        for elsewhere in ["https://", "@import", "url(\"", "url('", "url(/", "import("] {
            assert!(!content.contains(elsewhere), "{name}: {elsewhere}");
        }
    }
}

#[test]
fn text_never_becomes_markup() {
    for (name, _, content) in FILES {
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
        ] {
            assert!(!content.contains(sink), "{name}: {sink}");
        }
    }
    // The page contains no inline script or style for which the policy would need an exception.
    for inside in ["<script>", "<style", " style=", " onclick", "javascript:"] {
        assert!(!PAGE.contains(inside), "{inside}");
    }
}

#[tokio::test]
async fn other_files_are_not_served() {
    for path in ["/dashboard/none.js", "/dashboard/mod.rs", "/dashboard/index.html"] {
        let refused = file(path.parse().unwrap()).await.unwrap_err();
        assert_eq!(refused.code(), super::super::problem::Code::NoRoute, "{path}");
    }
}
