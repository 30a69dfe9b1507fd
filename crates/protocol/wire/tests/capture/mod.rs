//! Reads the captures in tests/data.
#![allow(dead_code, unreachable_pub)] // each test program uses a part of this

use std::path::{Path, PathBuf};

use carmine_types::crc32c;
use carmine_wire::frame::{Codec, Epilogue, FrameReader, Preamble, Tag, segment};

/// One frame as it was on the wire.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The describing line, to name the frame in failures.
    pub title: String,
    pub preamble: Preamble,
    pub segments: [Vec<u8>; 4],
    /// The capture has only the beginning of this segment.
    pub cut: [bool; 4],
    /// Empty if the frame has none.
    pub epilogue: Vec<u8>,
}

impl Captured {
    pub fn is_message(&self) -> bool {
        self.preamble.tag == Tag::Message
    }

    pub fn front(&self) -> &[u8] {
        &self.segments[segment::FRONT]
    }

    pub fn data(&self) -> &[u8] {
        &self.segments[segment::DATA]
    }

    pub fn is_whole(&self) -> bool {
        self.cut == [false; 4]
    }

    /// The frame's bytes. Only for whole ones.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.preamble.encode().to_vec();
        if !self.segments[0].is_empty() {
            bytes.extend_from_slice(&self.segments[0]);
            bytes.extend_from_slice(&crc32c::raw(crc32c::SEED, &self.segments[0]).to_le_bytes());
        }
        self.segments[1..].iter().for_each(|segment| bytes.extend_from_slice(segment));
        bytes.extend_from_slice(&self.epilogue);
        bytes
    }
}

pub fn data_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// All files of `dir` whose names end like this.
pub fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|path| path.to_str().unwrap().ends_with(suffix));
    paths.sort();
    assert!(!paths.is_empty(), "no *{suffix} in {}", dir.display());
    paths
}

pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap_or_else(|_| panic!("not hex: {pair:?}"))).collect()
}

/// The frames of a `*.frames.txt`; checks every checksum that the file allows to check.
pub fn frames(path: &Path) -> Vec<Captured> {
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("\n## ").skip(1).filter(|block| block.contains("\npreamble "));
    blocks.map(frame).collect()
}

fn frame(block: &str) -> Captured {
    let (title, lines) = block.split_once('\n').unwrap();
    let mut captured = None;
    for line in lines.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.split_once(' ').unwrap();
        let cut = value.ends_with("...");
        let bytes = hex(value.trim_end_matches('.'));
        if name == "preamble" {
            captured = Some(Captured {
                title: title.to_owned(),
                preamble: Preamble::decode(&bytes).unwrap_or_else(|e| panic!("{title}: {e}")),
                segments: Default::default(),
                cut: [false; 4],
                epilogue: Vec::new(),
            });
            assert_eq!(captured.as_ref().unwrap().preamble.encode()[..], bytes, "{title}");
            continue;
        }
        let captured = captured.as_mut().unwrap();
        let index = match name.split('[').next().unwrap() {
            "seg0" | "header" => segment::HEADER,
            "front" | "seg1" => segment::FRONT,
            "middle" | "seg2" => segment::MIDDLE,
            "data" | "seg3" => segment::DATA,
            "epilogue" => {
                captured.epilogue = bytes;
                continue;
            }
            other => panic!("{title}: line {other}"),
        };
        assert!(cut || bytes.len() == captured.preamble.len(index), "{title}: {name}");
        captured.segments[index] = bytes;
        captured.cut[index] = cut;
    }
    let captured = captured.unwrap();
    check_epilogue(&captured);
    captured
}

fn check_epilogue(captured: &Captured) {
    let Captured { title, preamble, segments, cut, epilogue } = captured;
    assert_eq!(preamble.count > 1, !epilogue.is_empty(), "{title}");
    if epilogue.is_empty() {
        return;
    }
    let epilogue = Epilogue::decode(epilogue).unwrap();
    let mut crcs = [0, 1, 2].map(|at| crc32c::raw(crc32c::SEED, &segments[at + 1]));
    for at in 0..3 {
        if cut[at + 1] {
            crcs[at] = epilogue.crcs[at];
        }
    }
    epilogue.verify(preamble, crcs).unwrap_or_else(|e| panic!("{title}: {e}"));
    assert!(!epilogue.aborted, "{title}");
}

/// Both directions of every stream of a `*.streams.txt`.
pub fn streams(path: &Path) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut all = Vec::new();
    for stream in text.split("Follow: tcp,raw").skip(1) {
        let lines = stream.lines().skip_while(|line| !line.starts_with("Node 1")).skip(1);
        let lines: Vec<&str> = lines.take_while(|line| !line.starts_with('=')).collect();
        for second in [false, true] {
            let side = lines.iter().filter(|line| line.starts_with('\t') == second);
            all.push(side.flat_map(|line| hex(line)).collect());
        }
    }
    all
}

/// Splits one direction of a stream into its frames, all checksums checked. Returns the banner's length too.
pub fn split(stream: &[u8]) -> (usize, Vec<Captured>) {
    let (banner, banner_len) = carmine_wire::handshake::Banner::parse(stream).unwrap().unwrap();
    banner.check_compatible().unwrap();
    let mut rest = &stream[banner_len..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let preamble = Preamble::decode(rest).unwrap();
        let mut received = rest.to_vec();
        let (parsed, len) = FrameReader::default().next(&mut received).unwrap().unwrap();
        let (whole, left) = rest.split_at(len);
        let epilogue = &whole[len - Codec::Crc.epilogue_bytes(&preamble)..];
        let captured = Captured {
            title: format!("{:?} at {}", preamble.tag, stream.len() - rest.len()),
            preamble,
            segments: parsed.segments.map(<[u8]>::to_vec),
            cut: [false; 4],
            epilogue: epilogue.to_vec(),
        };
        assert_eq!(captured.bytes(), whole);
        frames.push(captured);
        rest = left;
    }
    (banner_len, frames)
}
