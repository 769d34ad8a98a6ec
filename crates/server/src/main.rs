//! The program `tollgate`.

use std::process::ExitCode;

use clap::Parser as _;
use server::config::{Cli, Command, LedgerCommand, OperatorCommand, TokenCommand};
use server::logging::{self, LogFormat};
use server::{demo, doctor, ledger, ledger_export, operator, serve, token};

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => {
            logging::start(args.log_format, "info,sqlx=warn,sqlx_core=warn");
            serve::serve(*args).await
        }
        Command::Demo(args) => {
            logging::start(LogFormat::Text, "warn");
            demo::demo(args).await
        }
        Command::Migrate(args) => {
            logging::start(LogFormat::Text, "warn");
            serve::migrate(args).await
        }
        Command::Doctor(args) => {
            logging::start(LogFormat::Text, "error");
            return doctor::doctor(args).await;
        }
        Command::Ledger {
            command: LedgerCommand::Verify(args),
        } => {
            // A ledger takes its time.
            logging::start(LogFormat::Text, "warn,sqlx=error");
            return ledger::verify(args).await;
        }
        Command::Ledger {
            command: LedgerCommand::Export(args),
        } => {
            // A ledger takes its time.
            logging::start(LogFormat::Text, "warn,sqlx=error");
            ledger_export::export(args).await
        }
        Command::Token {
            command: TokenCommand::Generate,
        } => {
            println!("{}", token::generate().reveal());
            Ok(())
        }
        Command::Operator {
            command: OperatorCommand::Create(args),
        } => {
            logging::start(LogFormat::Text, "warn");
            operator::create(args).await
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tollgate: {error:#}");
            ExitCode::FAILURE
        }
    }
}
