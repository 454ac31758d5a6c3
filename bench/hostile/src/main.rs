//! Who starves and who hangs under hostile schedules: cenote-pool, deadpool and bb8.
//!
//! Without arguments it runs every scenario with every pool, each in a process of its own, and prints
//! a table. A process that does not end within [`PATIENCE`] is killed: it hangs.

mod pools;
mod scenarios;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a scenario may take. The longest one that ends takes about half of it.
const PATIENCE: Duration = Duration::from_secs(12);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => print_table(),
        [scenario, pool] => println!("{}", scenarios::run(scenario, pool)),
        _ => {
            eprintln!("usage: cenote-bench-hostile [SCENARIO POOL]");
            std::process::exit(2);
        }
    }
}

fn print_table() {
    let pools = pools::NAMES;
    println!("| scenario | {} |", pools.join(" | "));
    println!("|---|{}", "---|".repeat(pools.len()));
    for (name, title) in scenarios::ALL {
        let ends: Vec<String> = pools.iter().map(|pool| observe(name, pool)).collect();
        println!("| {title} | {} |", ends.join(" | "));
    }
}

/// Runs one scenario in a process of its own.
fn observe(scenario: &str, pool: &str) -> String {
    let program = std::env::current_exe().expect("the program has a path");
    let mut process = Command::new(program)
        .args([scenario, pool])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program can be started");
    let began = Instant::now();
    loop {
        if let Some(status) = process.try_wait().expect("it is our child") {
            let mut said = String::new();
            if let Some(out) = &mut process.stdout {
                out.read_to_string(&mut said).expect("it writes text");
            }
            return match status.success() {
                true => said.trim().to_owned(),
                false => "**panics**".to_owned(),
            };
        }
        if began.elapsed() > PATIENCE {
            process.kill().expect("it is our child");
            process.wait().expect("it is our child");
            return format!("**hangs** (killed after {} s)", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
