//! Order of the children of a znode with very many, by name, for pages. It stores only indices, in pieces of bounded size, so that a change moves a
//! few hundred of them and never all.

use alloc::vec::Vec;

use crate::tree::index::NodeIndex;

/// Maximum number of children in one piece; a full piece is split. A piece is small enough to be moved quickly, and large enough that the list of
/// pieces stays short: two thousand for a million children.
const PIECE: usize = 1024;

/// Children in the order of their names, in pieces. No piece is empty.
#[derive(Debug)]
pub(crate) struct Order(Vec<Vec<NodeIndex>>);

impl Order {
    /// Makes the order of children that are sorted by name.
    pub(crate) fn from_sorted(children: &[NodeIndex]) -> Self {
        Self(children.chunks(PIECE / 2).map(<[_]>::to_vec).collect())
    }

    /// Returns the children in order, from the first one whose name is not before `name`.
    pub(crate) fn first_at<'n>(
        &self,
        name: &str,
        name_of: impl Fn(NodeIndex) -> &'n str,
    ) -> impl Iterator<Item = NodeIndex> + '_ {
        let (piece, at) = self.place(name, name_of);
        let (first, rest) = match self.0.get(piece) {
            Some(first) => (&first[at..], &self.0[piece + 1..]),
            None => (&[][..], &[][..]),
        };
        first.iter().chain(rest.iter().flatten()).copied()
    }

    /// Adds a child whose name is not there yet.
    pub(crate) fn insert<'n>(&mut self, child: NodeIndex, name_of: impl Fn(NodeIndex) -> &'n str) {
        let (mut piece, mut at) = self.place(name_of(child), name_of);
        if piece == self.0.len() {
            match self.0.last() {
                Some(last) => (piece, at) = (piece - 1, last.len()),
                None => self.0.push(Vec::new()),
            }
        }
        let full = &mut self.0[piece];
        full.insert(at, child);
        if full.len() > PIECE {
            let upper = full.split_off(PIECE / 2);
            self.0.insert(piece + 1, upper);
        }
    }

    /// Removes a child; its name must still be known.
    pub(crate) fn remove<'n>(&mut self, child: NodeIndex, name_of: impl Fn(NodeIndex) -> &'n str) {
        let (piece, at) = self.place(name_of(child), name_of);
        let removed = self.0[piece].remove(at);
        debug_assert_eq!(removed, child);
        if self.0[piece].is_empty() {
            self.0.remove(piece);
        }
    }

    /// Returns the position of the first child whose name is not before `name`: the piece, and the index in it.
    fn place<'n>(&self, name: &str, name_of: impl Fn(NodeIndex) -> &'n str) -> (usize, usize) {
        let ends_before = |piece: &Vec<NodeIndex>| {
            let last = *piece.last().expect("no piece is empty");
            name_of(last) < name
        };
        let piece = self.0.partition_point(ends_before);
        let at = self
            .0
            .get(piece)
            .map_or(0, |piece| piece.partition_point(|&child| name_of(child) < name));
        (piece, at)
    }
}
