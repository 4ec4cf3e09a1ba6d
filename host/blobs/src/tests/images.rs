//! Images out of messages and back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const MOST_BYTES: u64 = 64;

fn images(state: &State) -> ImageStore {
    ImageStore::new_stored(state.home.session_blobs(&state.session("s.jsonl")), MOST_BYTES)
}

fn image(bytes: &[u8]) -> Value {
    json!({ "type": "image", "data": STANDARD.encode(bytes), "mimeType": "image/png" })
}

fn with(blocks: &[Value]) -> String {
    json!({ "role": "user", "content": blocks, "timestamp": 1 }).to_string()
}

#[test]
fn large_images_go_once_and_come_back() {
    let state = State::new();
    let (large, small) = (image(&[7; 500]), image(&[7; 10]));
    let message = with(&[json!({"type": "text", "text": "see"}), large.clone(), small, large]);
    let away = images(&state).store_images(&message).unwrap();
    let handle = hash(&[7; 500]);
    let block =
        format!(r#"{{"type":"image","data":"","ctxhostBlob":"{handle}","mimeType":"image/png"}}"#);
    assert_eq!(away.matches(&block).count(), 2, "{away}");
    assert_eq!(state.shared().blobs().unwrap().len(), 1);
    assert_eq!(images(&state).load_images(&away), message);
    let inline = ImageStore::new_inline(state.home.session_blobs(&state.session("other.jsonl")));
    assert_eq!(inline.store_images(&message), None);
    assert_eq!(
        inline.load_images(&away),
        message,
        "whatever is set now, what was put away is found"
    );
    assert_eq!(images(&state).store_images(&away), None, "once is enough");
    let line = |message: &str| format!("{{\"type\":\"message\",\"message\":{message},\"z\":1}}\n");
    assert_eq!(inline.load_line_images(&line(&away)), line(&message));
    assert_eq!(inline.load_line_images("no record ctxhostBlob"), "no record ctxhostBlob");
}

#[test]
fn a_missing_or_damaged_image_becomes_a_text_that_names_it() {
    let state = State::new();
    let away = images(&state).store_images(&with(&[image(&[1; 99]), image(&[2; 99])])).unwrap();
    let blobs = state.shared().blobs().unwrap();
    fs::remove_file(&blobs[0].path).unwrap();
    fs::write(&blobs[1].path, "other").unwrap();
    for images in [images(&state), ImageStore::default()] {
        let message: Value = serde_json::from_str(&images.load_images(&away)).unwrap();
        for (block, bytes) in [(0, [1; 99]), (1, [2; 99])] {
            assert_eq!(message["content"][block]["type"], "text");
            let text = message["content"][block]["text"].as_str().unwrap();
            assert!(text.contains(&hash(&bytes)) && text.contains("image/png"), "{text}");
        }
    }
}

#[test]
fn a_block_that_somebody_wrote_in_another_order_is_found_too() {
    let state = State::new();
    let handle = state.shared().put(&[9; 99]).unwrap();
    let image = image(&[9; 99]);
    for block in [
        json!({ "mimeType": "image/png", "ctxhostBlob": handle, "data": "", "type": "image" }),
        json!({ "type": "image", "mimeType": "image/png", "ctxhostBlob": handle }),
        json!({ "type": "image", "data": null, "ctxhostBlob": handle, "mimeType": "image/png" }),
    ] {
        let message = images(&state).load_images(&with(&[block])).into_owned();
        let message: Value = serde_json::from_str(&message).unwrap();
        assert_eq!(message["content"][0], image);
    }
}

#[test]
fn what_could_not_be_written_back_the_same_stays() {
    let state = State::new();
    // Bits that no byte is made of.
    let padded = format!("{}=", "B".repeat(99));
    let escaped = format!(
        r#"{{"role":"user","content":[{{"type":"image","data":"\u0041{}"}}]}}"#,
        "A".repeat(99)
    );
    let messages = [
        with(&[
            json!({ "type": "image", "data": "no base64 ".repeat(20), "mimeType": "image/png" }),
        ]),
        with(&[json!({ "type": "image", "data": padded, "mimeType": "image/png" })]),
        with(&[json!({ "type": "image", "data": 7 })]),
        with(&[json!({ "type": "document", "data": STANDARD.encode([0; 99]) })]),
        json!({ "role": "user", "content": "ctxhostBlob" }).to_string(),
        "no JSON ctxhostBlob".into(),
        escaped,
    ];
    for message in messages {
        assert_eq!(images(&state).store_images(&message), None, "{message}");
        assert_eq!(images(&state).load_images(&message), message);
    }
    assert_eq!(state.shared().blobs().unwrap(), []);
}

#[test]
fn an_image_that_cannot_be_kept_stays_in_its_message() {
    let state = State::new();
    fs::write(state.folder.path().join("blobs"), "in the way").unwrap();
    assert_eq!(images(&state).store_images(&with(&[image(&[1; 99])])), None);
}

fn blocks() -> impl Strategy<Value = Vec<Value>> {
    let block = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| image(&bytes)),
        1 => (0_u8..3).prop_map(|seed| image(&[seed; 150])),
        1 => ".{0,40}".prop_map(|text| json!({ "type": "text", "text": text })),
        1 => any::<f64>().prop_map(|number| json!({ "type": "other", "ctxhostBlob": number })),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| json!({
            "ctxhostBlob": "mine", "type": "image", "data": STANDARD.encode(bytes) })),
    ];
    prop::collection::vec(block, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Bringing back undoes putting away, to the byte.
    #[test]
    fn nothing_of_a_message_changes_on_the_way_out_and_back(blocks in blocks()) {
        let state = State::new();
        let message = with(&blocks);
        let images = images(&state);
        let away = images.store_images(&message);
        let written = away.as_deref().unwrap_or(&message);
        prop_assert_eq!(images.load_images(written), message.as_str());
        let large = |block: &&Value| {
            let data = block["data"].as_str().unwrap_or_default();
            block["type"] == "image" && block["ctxhostBlob"].is_null()
                && data.len() as u64 > MOST_BYTES
        };
        prop_assert_eq!(away.is_some(), blocks.iter().any(|block| large(&block)));
    }
}
