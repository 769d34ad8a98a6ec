//! As much of Redis's protocol as a test needs to give a server orders.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A local server answers in well under a millisecond, unless it is stopped.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Sends one command over a connection of its own. Arrays come as their elements, one a line; an error that the server
/// answers is its text after `Err`.
pub(crate) async fn command(port: u16, password: Option<&str>, words: &[&str]) -> io::Result<Result<String, String>> {
    timeout(ANSWER_WAIT_MAX, async {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        if let Some(password) = password {
            let answer = exchange(&mut stream, &["AUTH", password]).await?;
            if answer.is_err() {
                return Ok(answer);
            }
        }
        exchange(&mut stream, words).await
    })
    .await?
}

async fn exchange(stream: &mut BufReader<TcpStream>, words: &[&str]) -> io::Result<Result<String, String>> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes()).await?;

    let mut elements = Vec::new();
    // Elements still to come; an array is replaced by its own.
    let mut expected = 1;
    while expected > 0 {
        expected -= 1;
        let line = line(stream).await?;
        let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
        match kind {
            "+" | ":" => elements.push(rest.to_owned()),
            "-" => return Ok(Err(rest.to_owned())),
            "$" => elements.push(bulk(stream, number(rest)?).await?),
            "*" => expected += number(rest)?.max(0),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    Ok(Ok(elements.join("\n")))
}

async fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

async fn bulk(stream: &mut BufReader<TcpStream>, length: i64) -> io::Result<String> {
    let Ok(length) = usize::try_from(length) else {
        return Ok("(nil)".to_owned());
    };
    let mut bytes = vec![0; length + 2];
    stream.read_exact(&mut bytes).await?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| io::ErrorKind::InvalidData.into())
}
