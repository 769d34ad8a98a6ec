//! Embeddings as a caller reads them.

use anyhow::Result;
use serde_json::{Value, json};

use super::base64;
use crate::dialect::testing::{plain, post};

const PATH: &str = "/embeddings";

fn request(input: Value) -> Value {
    json!({ "model": "embed-sim", "input": input })
}

fn numbers(body: &Value, at: usize) -> Vec<f64> {
    let embedding = body["data"][at]["embedding"].as_array();
    embedding.into_iter().flatten().filter_map(Value::as_f64).collect()
}

#[tokio::test]
async fn an_input_has_all_four_shapes() -> Result<()> {
    let simulator = plain().await?;
    for (input, vectors, tokens) in [
        (json!("12345"), 1, 3 + 4 + 1),
        (json!(["12345", "67"]), 2, 3 + 8 + 2),
        (json!([1, 2, 3]), 1, 3 + 4 + 3),
        (json!([[1, 2, 3], [4]]), 2, 3 + 8 + 4),
    ] {
        let body = post(&simulator, PATH, &request(input.clone())).await?.json()?;
        assert_eq!((&body["object"], &body["model"]), (&"list".into(), &"embed-sim".into()));
        assert_eq!(body["data"].as_array().map(Vec::len), Some(vectors), "{input}");
        assert_eq!(
            body["usage"],
            json!({ "prompt_tokens": tokens, "total_tokens": tokens }),
            "{input}"
        );
    }
    let stats = simulator.stats();
    assert_eq!(
        (stats.prompt_tokens_sent, stats.completion_tokens_sent),
        (8 + 13 + 10 + 15, 0)
    );
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_same_text_has_the_same_vector_of_length_one() -> Result<()> {
    let simulator = plain().await?;
    let body = post(&simulator, PATH, &request(json!(["one", "two", "one"])))
        .await?
        .json()?;
    let (first, second, third) = (numbers(&body, 0), numbers(&body, 1), numbers(&body, 2));
    assert!(first == third && first != second);
    assert_eq!(first.len(), 64);
    let length: f64 = second.iter().map(|number| number * number).sum();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
    let mut short = request(json!("one"));
    short["dimensions"] = 3.into();
    assert_eq!(numbers(&post(&simulator, PATH, &short).await?.json()?, 0).len(), 3);
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn base64_holds_the_same_numbers() -> Result<()> {
    let simulator = plain().await?;
    let mut body = request(json!("one"));
    let floats = numbers(&post(&simulator, PATH, &body).await?.json()?, 0);
    body["encoding_format"] = "base64".into();
    let encoded = post(&simulator, PATH, &body).await?.json()?;
    let bytes = floats.into_iter().flat_map(|number| (number as f32).to_le_bytes());
    assert_eq!(encoded["data"][0]["embedding"], base64(bytes));
    simulator.stop().await;
    Ok(())
}

#[test]
fn base64_is_that_of_the_rfc() {
    for (bytes, text) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
    ] {
        assert_eq!(base64(bytes.bytes()), text);
    }
    assert_eq!(base64([0xfb, 0xff, 0xfe].into_iter()), "+//+");
}

#[tokio::test]
async fn orders_are_obeyed_where_they_mean_something() -> Result<()> {
    let simulator = plain().await?;
    let silent = post(&simulator, PATH, &request(json!("[[sim: no-usage]]")))
        .await?
        .json()?;
    assert!(silent["usage"].is_null() && silent["data"][0]["embedding"].is_array());
    let said = post(&simulator, PATH, &request(json!("[[sim: says-prompt=7]]")))
        .await?
        .json()?;
    assert_eq!(said["usage"], json!({ "prompt_tokens": 7, "total_tokens": 7 }));
    simulator.stop().await;
    Ok(())
}

#[tokio::test]
async fn what_is_missing_or_wrong_is_refused() -> Result<()> {
    let simulator = plain().await?;
    for (field, value) in [
        ("model", Value::Null),
        ("input", Value::Null),
        ("input", json!("")),
        ("input", json!([""])),
        ("input", json!([])),
        ("input", json!(vec!["x"; 2_049])),
        ("dimensions", json!(0)),
        ("dimensions", json!(5_000)),
        ("encoding_format", json!("hex")),
        ("encoding_format", json!(1)),
    ] {
        let mut body = request(json!("hello"));
        body[field] = value;
        assert_eq!(post(&simulator, PATH, &body).await?.status, 400, "{field}");
    }
    let mut large = request(json!(vec!["x"; 2_000]));
    large["dimensions"] = 501.into();
    assert_eq!(post(&simulator, PATH, &large).await?.status, 400);
    simulator.stop().await;
    Ok(())
}
