//! Captured trees for tests.

use std::path::Path;

use crate::{Finding, Options, examine};

/// A folder with the files of another machine.
pub(crate) struct Tree(tempfile::TempDir);

impl Tree {
    /// Files and their texts.
    pub(crate) fn new(files: &[(&str, &str)]) -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        files.iter().for_each(|(path, text)| tree.put(path, text));
        tree
    }

    /// Adds or replaces a file.
    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn options(&self) -> Options {
        Options { root: self.path().to_path_buf(), ..Options::default() }
    }

    /// The findings in it about a topic.
    pub(crate) fn find(&self, topic: &str) -> Vec<Finding> {
        find(&self.options(), topic)
    }

    /// The only finding about a topic.
    pub(crate) fn one(&self, topic: &str) -> Finding {
        let found = self.find(topic);
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    }
}

/// The findings about a topic.
pub(crate) fn find(options: &Options, topic: &str) -> Vec<Finding> {
    examine(options).into_iter().filter(|found| found.topic == topic).collect()
}
