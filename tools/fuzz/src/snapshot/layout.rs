//! The layout of a snapshot file, for code that changes one (`docs/internals/format.md` has the tables). It splits a
//! file into pieces and joins them with the right lengths and checksums. It checks only what that requires;
//! the node decides whether a snapshot file is valid.

/// Length of the fixed part of a header, without the checksum after it.
const FIXED_HEADER_BYTES: usize = 80;
/// Offset of the header's length in the header.
const HEADER_LENGTH_AT: usize = 12;
/// Length of a checksum.
pub(super) const CRC_BYTES: usize = 4;
/// Length of the frame before each part: the part's length and checksum.
pub(super) const FRAME_BYTES: usize = 8;
const FOOTER_BYTES: usize = 32;
/// Offsets of the last part's checksum and of the footer's own checksum in the footer.
const FOOTER_CHAIN_AT: usize = 24;
const FOOTER_CRC_AT: usize = 28;

/// The pieces of a snapshot file.
pub struct Layout {
    /// Without its checksum.
    pub header: Vec<u8>,
    /// Without their frames.
    pub parts: Vec<Vec<u8>>,
}

impl Layout {
    /// Splits a file into pieces. Ignores checksums, and all bytes after the last part that fits.
    pub fn of(file: &[u8]) -> Option<Self> {
        let (header_end, end) = bounds(file)?;
        let mut parts = Vec::new();
        let mut at = header_end;
        while let Some(part_end) = part_end(file, at, end) {
            parts.push(file[at + FRAME_BYTES..part_end].to_vec());
            at = part_end;
        }
        Some(Self {
            header: file[..header_end - CRC_BYTES].to_vec(),
            parts,
        })
    }

    /// Returns the whole file, with every length and checksum correct.
    pub fn file(&self) -> Vec<u8> {
        let mut file = self.header.clone();
        file.resize(file.len() + CRC_BYTES, 0);
        let header_bytes = file.len() as u32;
        if let Some(length) = file.get_mut(HEADER_LENGTH_AT..HEADER_LENGTH_AT + 4) {
            length.copy_from_slice(&header_bytes.to_le_bytes());
        }
        for part in &self.parts {
            file.extend((part.len() as u32).to_le_bytes());
            file.extend([0; CRC_BYTES]);
            file.extend(part);
        }
        file.extend(b"SNAPDONE");
        file.extend((self.parts.len() as u64).to_le_bytes());
        file.extend(
            self.parts
                .iter()
                .map(|part| part.len() as u64)
                .sum::<u64>()
                .to_le_bytes(),
        );
        file.extend([0; 2 * CRC_BYTES]);
        put_checksums(&mut file, header_bytes as usize);
        file
    }
}

/// Returns the file with corrected checksums and no other change; `None` if their positions cannot be
/// determined.
pub fn repair(file: &[u8]) -> Option<Vec<u8>> {
    let (header_end, _) = bounds(file)?;
    let mut repaired = file.to_vec();
    put_checksums(&mut repaired, header_end);
    Some(repaired)
}

/// Returns the ends of the header and of the parts.
fn bounds(file: &[u8]) -> Option<(usize, usize)> {
    let end = file.len().checked_sub(FOOTER_BYTES)?;
    let header_end = u32_at(file, HEADER_LENGTH_AT)?;
    (FIXED_HEADER_BYTES + CRC_BYTES..=end)
        .contains(&header_end)
        .then_some((header_end, end))
}

/// Returns the end of the part whose frame starts at `at`, if it fits.
fn part_end(file: &[u8], at: usize, end: usize) -> Option<usize> {
    let part_end = at.checked_add(FRAME_BYTES)?.checked_add(u32_at(file, at)?)?;
    (part_end <= end).then_some(part_end)
}

/// Writes the checksums, from the first on, as each covers the one before it.
fn put_checksums(file: &mut [u8], header_end: usize) {
    let end = file.len() - FOOTER_BYTES;
    let mut chain = crc32c::crc32c(&file[..header_end - CRC_BYTES]);
    put(file, header_end - CRC_BYTES, chain);
    let mut at = header_end;
    while let Some(part_end) = part_end(file, at, end) {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&chain.to_le_bytes()), &file[at..at + 4]);
        chain = crc32c::crc32c_append(crc, &file[at + FRAME_BYTES..part_end]);
        put(file, at + CRC_BYTES, chain);
        at = part_end;
    }
    put(file, end + FOOTER_CHAIN_AT, chain);
    let crc = crc32c::crc32c(&file[end..end + FOOTER_CRC_AT]);
    put(file, end + FOOTER_CRC_AT, crc);
}

fn put(file: &mut [u8], at: usize, crc: u32) {
    file[at..at + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
}

fn u32_at(file: &[u8], at: usize) -> Option<usize> {
    let bytes = file.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}
