//! Files and folders become sources.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use plimsoll_policy::{LoadError, MAX_SOURCE_BYTES, load};

#[test]
fn a_folder_is_read_in_name_order() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b.yaml", "a.yml", "c.txt", ".hidden.yaml"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    fs::create_dir(folder.path().join("below.yaml")).unwrap();
    let sources = load(&[folder.path().to_path_buf(), folder.path().join("c.txt")]).unwrap();
    let texts: Vec<_> = sources.iter().map(|source| source.text.as_str()).collect();
    assert_eq!(texts, ["a.yml", "b.yaml", "c.txt"]);
    assert!(sources[0].name.ends_with("a.yml"));
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let large = path("large.yaml", &vec![b' '; MAX_SOURCE_BYTES + 1]);
    assert!(matches!(load(&[large]), Err(LoadError::TooLarge { .. })));
    let whole = path("whole.yaml", &vec![b' '; MAX_SOURCE_BYTES]);
    assert!(load(&[whole]).is_ok());
    let binary = path("binary.yaml", &[0xff, 0xfe]);
    assert!(matches!(load(&[binary]), Err(LoadError::NotUtf8 { .. })));
    let missing = load(&[folder.path().join("missing.yaml")]).unwrap_err();
    assert!(missing.to_string().contains("missing.yaml"));
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(load(&[empty.path().to_path_buf()]), Err(LoadError::EmptyFolder { .. })));
}
