//! Knots: strongly connected components of more than one module.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::Module;

/// Returns the knots of a graph of imports.
pub fn knots(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = imports
        .keys()
        .map(|module| (module, reachable(imports, module)))
        .collect();
    let mut left: BTreeSet<&Module> = imports.keys().collect();
    let mut found = Vec::new();
    while let Some(first) = left.pop_first() {
        let is_mutual = |other: &&&Module| reached[**other].contains(first);
        let knot: Vec<Module> = reached[first]
            .iter()
            .filter(is_mutual)
            .map(|&module| module.clone())
            .collect();
        if knot.len() > 1 {
            left.retain(|module| !knot.contains(module));
            found.push(knot);
        }
    }
    found
}

/// Returns the modules that a module imports directly or indirectly, and the module itself.
fn reachable<'g>(imports: &'g BTreeMap<Module, BTreeSet<Module>>, from: &'g Module) -> BTreeSet<&'g Module> {
    let mut reached = BTreeSet::from([from]);
    let mut todo = vec![from];
    while let Some(module) = todo.pop() {
        todo.extend(imports[module].iter().filter(|next| reached.insert(next)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knots_are_circles_of_two_or_more_modules() {
        let graph: BTreeMap<Module, BTreeSet<Module>> = [
            ("a", "b"),
            ("b", "c"),
            ("c", "a d"),
            ("d", "e"),
            ("e", "f"),
            ("f", "e"),
            ("g", "a f"),
        ]
        .into_iter()
        .map(|(from, to)| (from.to_owned(), to.split(' ').map(str::to_owned).collect()))
        .collect();
        assert_eq!(knots(&graph), [vec!["a", "b", "c"], vec!["e", "f"]]);
    }
}
