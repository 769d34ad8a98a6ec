//! How estimates of the input compare with what is counted, and what reading and estimating a request costs.
//!
//! `cargo xtask bench estimates` runs this and prints two tables. What a provider counts is played by an exact encoding, which
//! the estimate does not know: it goes by bytes and by what it learns, as for every model whose encoding nobody published.

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use domain::policy::Encoding;
use protocol::endpoint::Endpoint;
use protocol::request::InferenceRequest;
use tokens::{Around, Counter, LEARNED_AFTER, Ratio, RatioBook};

/// Requests of each kind.
const REQUESTS: usize = 200;
/// Rounds of each measurement, of which the median is told.
const ROUNDS: usize = 15;

const KINDS: [(&str, &[&str]); 6] = [
    (
        "English",
        &[
            "The committee met twice last week, and neither meeting ended with a decision that anybody could act on.",
            "Please summarise the attached minutes in five bullet points, with names and dates.",
            "Our customers report that invoices arrive late whenever the export runs over the weekend.",
            "Nobody had expected the bridge to be closed, so the whole convoy took the northern road instead.",
            "What would happen to the estimate if interest rates rose by half a point before the spring?",
        ],
    ),
    (
        "German",
        &[
            "Die Geschwindigkeitsbegrenzung gilt ab der Ortseinfahrt, sofern keine abweichende Beschilderung angebracht ist.",
            "Bitte fassen Sie das Besprechungsprotokoll zusammen und heben Sie offene Punkte hervor.",
            "Der Rechnungslauf wurde wegen einer Netzstörung abgebrochen und muss morgen wiederholt werden.",
            "Im Herbst färben sich die Blätter, und über den Feldern liegt am frühen Morgen Nebel.",
        ],
    ),
    (
        "Chinese",
        &[
            "请把这份会议纪要整理成五个要点，并注明负责人和截止日期。",
            "昨天晚上系统升级以后，部分用户反映页面打开得很慢。",
            "如果明年春天之前利率上调，我们的预算应该怎样调整？",
            "山里的天气变化很快，早上还是晴天，中午就下起了大雨。",
        ],
    ),
    (
        "Japanese",
        &[
            "この議事録を五つの要点にまとめ、担当者と期限を書いてください。",
            "昨夜の更新のあと、画面が開くのに時間がかかるという報告がありました。",
            "静かな朝、川沿いの道を歩いていると、遠くから鐘の音が聞こえた。",
        ],
    ),
    (
        "Code",
        &[
            "fn sum(values: &[i64]) -> Option<i64> {\n    values.iter().try_fold(0_i64, |sum, value| sum.checked_add(*value))\n}\n",
            "for (const [name, value] of Object.entries(settings)) {\n  if (value === undefined) continue;\n  target[name] = value;\n}\n",
            "select tenant_id, count(*) as requests\nfrom settlements\nwhere admitted_at >= $1\ngroup by tenant_id\norder by requests desc;\n",
        ],
    ),
    (
        "JSON",
        &[
            r#"{"id":48213,"name":"pump-7","readings":[12.5,12.75,13.0],"is_open":false},"#,
            r#"{"user":{"id":"u_8812","email":"someone@example.com"},"roles":["member"],"since":"2026-03-04"},"#,
        ],
    ),
];

/// A sequence that is the same in every run (Knuth's constants).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A chat of a few messages, some short and some long.
fn chat(sentences: &[&str], dice: &mut Dice) -> Bytes {
    let messages: Vec<String> = (0..=dice.below(4))
        .map(|_| {
            let text: String = (0..=dice.below(40))
                .flat_map(|_| [sentences[dice.below(sentences.len())], " "])
                .collect();
            format!(r#"{{"role":"user","content":{}}}"#, quoted(&text))
        })
        .collect();
    format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(",")).into()
}

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

fn inspect(body: &Bytes) -> InferenceRequest {
    InferenceRequest::inspect(Endpoint::ChatCompletions, body).expect("a request")
}

fn around(request: &InferenceRequest) -> Around {
    Around {
        messages: request.messages(),
        preamble_tokens: request.preamble_tokens(),
    }
}

/// One line of the first table.
fn compare(name: &str, bodies: &[Bytes], provider: Encoding, counter: &Counter) {
    let book = RatioBook::new();
    let mut before = Vec::new();
    let mut after = Vec::new();
    let (mut above_expected, mut above_ceiling) = (0, 0);
    for (place, body) in bodies.iter().enumerate() {
        let request = inspect(body);
        let counted = counter.estimate_input(provider, Ratio::ONE, around(&request), request.parts());
        let actual = counted.guess_tokens;
        let ratio = book.ratio("m");
        let estimate = counter.estimate_input(Encoding::Ratio, ratio, around(&request), request.parts());
        let percent = estimate.expected_tokens as f64 / actual as f64 * 100.0;
        if place < LEARNED_AFTER {
            before.push(percent);
        } else {
            after.push(percent);
            above_expected += usize::from(actual > estimate.expected_tokens);
        }
        above_ceiling += usize::from(actual > estimate.ceiling_tokens);
        book.observe("m", estimate.guess_tokens, actual);
    }
    before.sort_by(f64::total_cmp);
    after.sort_by(f64::total_cmp);
    let at = |sorted: &[f64], share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    println!(
        "| {name} | {:.0} % | {:.0} % | {:.0} to {:.0} % | {:.1} % | {above_ceiling} |",
        at(&before, 0.5),
        at(&after, 0.5),
        at(&after, 0.1),
        at(&after, 0.9),
        above_expected as f64 / after.len() as f64 * 100.0,
    );
}

/// The median of some rounds, in microseconds.
fn median_us(mut work: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            work();
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// A chat whose body has about so many bytes: a long system prompt that comes again, and a question that does not.
fn sized(bytes: usize, question: usize) -> Bytes {
    let mut dice = Dice(7);
    let sentences = KINDS[0].1;
    let mut system = String::new();
    while system.len() < bytes - 300 {
        system.push_str(sentences[dice.below(sentences.len())]);
        system.push(' ');
    }
    format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":{}}},{{"role":"user","content":"Question {question}: what follows from this for us?"}}]}}"#,
        quoted(&system)
    )
    .into()
}

fn main() {
    let counter = Counter::new();
    counter.warm();
    println!("\nExpected input, in percent of what the provider counts ({REQUESTS} requests of each kind):\n");
    println!("| requests | first {LEARNED_AFTER} | learned | most of them | above expected | above ceiling |");
    println!("|---|---|---|---|---|---|");
    for provider in [Encoding::O200kBase, Encoding::Cl100kBase] {
        let mut all = Vec::new();
        for (name, sentences) in KINDS {
            let mut dice = Dice(1);
            let bodies: Vec<Bytes> = (0..REQUESTS).map(|_| chat(sentences, &mut dice)).collect();
            compare(&format!("{name}, {}", provider.as_str()), &bodies, provider, &counter);
            all.extend(bodies.into_iter().enumerate());
        }
        // One of each kind after the other.
        all.sort_by_key(|(place, _)| *place);
        let mixed: Vec<Bytes> = all.into_iter().map(|(_, body)| body).take(REQUESTS).collect();
        compare(&format!("all mixed, {}", provider.as_str()), &mixed, provider, &counter);
    }

    println!("\nReading and estimating one request, in microseconds (median of {ROUNDS}):\n");
    println!("| body | inspect | count exactly, first time | the same with a known system prompt | by size |");
    println!("|---|---|---|---|---|");
    for (name, bytes) in [("4 KB", 4 * 1024), ("800 KB", 800 * 1024)] {
        let body = sized(bytes, 0);
        let inspected = median_us(|| {
            black_box(inspect(black_box(&body)));
        });
        let request = inspect(&body);
        let estimate = |counter: &Counter, encoding, request: &InferenceRequest| {
            black_box(counter.estimate_input(encoding, Ratio::ONE, around(request), request.parts()));
        };
        let first = median_us(|| estimate(&Counter::new(), Encoding::O200kBase, &request));
        let known = Counter::new();
        estimate(&known, Encoding::O200kBase, &request);
        let mut question = 0;
        let again: Vec<InferenceRequest> = (0..ROUNDS).map(|place| inspect(&sized(bytes, place + 1))).collect();
        let repeated = median_us(|| {
            estimate(&known, Encoding::O200kBase, &again[question % ROUNDS]);
            question += 1;
        });
        let by_size = median_us(|| estimate(&known, Encoding::Ratio, &request));
        println!("| {name} | {inspected:.1} | {first:.0} | {repeated:.1} | {by_size:.1} |");
    }
    println!();
}
