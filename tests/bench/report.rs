//! The table, the ratios, and the gates of the design.

/// One round of one proxy.
#[derive(Clone, Copy)]
pub struct Cost {
    /// User + system time of its processes for each answered request.
    pub cpu_micros: f64,
    /// Answers a second.
    pub per_second: f64,
    /// Median latency.
    pub p50_micros: u32,
    /// 99th percentile of latency.
    pub p99_micros: u32,
    /// Clock ticks in user space and in the kernel.
    pub ticks: (u64, u64),
    /// Right answers.
    pub calls: u64,
    /// Wrong or missing answers.
    pub errors: u64,
    /// Requests that came due while every connection was busy.
    pub late: u64,
}

/// One proxy's figures.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Rounds as fast as it goes.
    pub saturated: Vec<Cost>,
    /// Rounds at the constant rate.
    pub fixed: Vec<Cost>,
    /// PSS before any request, bytes.
    pub at_rest: u64,
    /// RSS before any request, bytes.
    pub rss_at_rest: u64,
    /// Bytes of PSS for each idle connection.
    pub idle: Option<f64>,
}

impl Row {
    /// No figures yet.
    pub fn new(name: &'static str) -> Row {
        Row { name, saturated: Vec::new(), fixed: Vec::new(), at_rest: 0, rss_at_rest: 0, idle: None }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn cpu(costs: &[Cost]) -> f64 {
    median(costs.iter().map(|cost| cost.cpu_micros))
}

/// The part of the time that was spent outside the kernel, over all rounds.
fn user_share(costs: &[Cost]) -> f64 {
    let user: u64 = costs.iter().map(|cost| cost.ticks.0).sum();
    let system: u64 = costs.iter().map(|cost| cost.ticks.1).sum();
    user as f64 / (user + system).max(1) as f64
}

/// Ratios are taken within each round and then the median of them: what disturbed a round disturbed both.
fn ratio(costs: &[Cost], to: &[Cost]) -> f64 {
    median(costs.iter().zip(to).map(|(cost, base)| cost.cpu_micros / base.cpu_micros))
}

/// The ratio to the better of nginx and HAProxy, in each round.
fn ratio_to_better(rows: &[Row], of: &Row, pick: fn(&Row) -> &[Cost]) -> f64 {
    let named = |name| rows.iter().find(|row| row.name == name).map(pick);
    let (nginx, haproxy) = (named("nginx"), named("HAProxy"));
    let better = |round: usize| {
        [nginx, haproxy].into_iter().flatten().map(|costs| costs[round].cpu_micros).fold(f64::INFINITY, f64::min)
    };
    median(pick(of).iter().enumerate().map(|(round, cost)| cost.cpu_micros / better(round)))
}

/// Prints everything; true when plimsoll is within its gates (or was not measured).
pub fn print(rows: &[Row], idle_connections: usize) -> bool {
    let saturated: fn(&Row) -> &[Cost] = |row| &row.saturated;
    let fixed: fn(&Row) -> &[Cost] = |row| &row.fixed;
    let floor = &rows[0];
    for (title, pick) in [("saturated", saturated), ("2,000 requests/s", fixed)] {
        println!("\nHTTP/1.1 keep-alive, 64 connections, {title}: medians of {} rounds", floor.saturated.len());
        println!(
            "{:10} {:>10} {:>8} {:>8} {:>10} {:>9} {:>8} {:>8} {:>7} {:>6}",
            "", "us CPU/req", "user us", "x floor", "x better*", "req/s", "p50 us", "p99 us", "errors", "late"
        );
        for row in rows {
            let costs = pick(row);
            println!(
                "{:10} {:>10.2} {:>8.2} {:>8.2} {:>10.2} {:>9.0} {:>8.0} {:>8.0} {:>7} {:>6}",
                row.name,
                cpu(costs),
                cpu(costs) * user_share(costs),
                ratio(costs, pick(floor)),
                ratio_to_better(rows, row, pick),
                median(costs.iter().map(|cost| cost.per_second)),
                median(costs.iter().map(|cost| f64::from(cost.p50_micros))),
                median(costs.iter().map(|cost| f64::from(cost.p99_micros))),
                costs.iter().map(|cost| cost.errors).sum::<u64>(),
                costs.iter().map(|cost| cost.late).sum::<u64>(),
            );
        }
    }
    println!("\nMemory of all processes of each");
    println!("{:10} {:>12} {:>12} {:>22}", "", "rest, PSS", "rest, RSS", "per idle connection**");
    for row in rows {
        let idle = row.idle.map_or("-".to_owned(), |bytes| format!("{bytes:.0} B"));
        let mib = |bytes: u64| format!("{:.2} MB", bytes as f64 / 1e6);
        println!("{:10} {:>12} {:>12} {:>22}", row.name, mib(row.at_rest), mib(row.rss_at_rest), idle);
    }
    println!("late: requests that came due while every connection was busy");
    println!("*  the better of nginx and HAProxy in the same round");
    println!("** growth of PSS over {idle_connections} keep-alive connections that made one request each");
    rows.iter().find(|row| row.name == "plimsoll").is_none_or(|own| gates(rows, own))
}

/// What one proxy came to in a part that has few columns: a row of them for each round.
pub struct Figures {
    name: &'static str,
    /// One value for each column.
    pub rounds: Vec<Vec<f64>>,
}

impl Figures {
    /// No rounds yet.
    pub fn new(name: &'static str) -> Figures {
        Figures { name, rounds: Vec::new() }
    }

    fn median(&self, column: usize) -> f64 {
        median(self.rounds.iter().map(|round| round[column]))
    }

    /// The median over the rounds of the ratio to the best of `others` in each.
    fn ratio(&self, column: usize, others: &[&Figures]) -> f64 {
        let best = |round: usize| others.iter().map(|other| other.rounds[round][column]).fold(f64::INFINITY, f64::min);
        median(self.rounds.iter().enumerate().map(|(round, values)| values[column] / best(round)))
    }
}

/// A ratio that plimsoll is held to.
pub struct Gate {
    /// What is compared.
    pub what: &'static str,
    /// In which column.
    pub column: usize,
    /// The best of these counts.
    pub than: &'static [&'static str],
    /// The most it may be.
    pub most: f64,
}

/// Prints a part: medians, and for the first `compared` columns the ratio to each peer.
pub fn print_figures(title: &str, columns: &[&str], rows: &[Figures], compared: usize) {
    println!("\n{title}: medians of {} rounds", rows[0].rounds.len());
    print!("{:10}", "");
    columns.iter().for_each(|column| print!(" {column:>12}"));
    println!();
    for row in rows {
        print!("{:10}", row.name);
        (0..columns.len()).for_each(|column| print!(" {:>12.2}", row.median(column)));
        println!();
    }
    for (column, name) in columns.iter().enumerate().take(compared) {
        println!("{name}: ratios within a round");
        print!("{:10}", "");
        rows.iter().for_each(|base| print!(" {:>12}", format!("x {}", base.name)));
        println!();
        for row in rows {
            print!("{:10}", row.name);
            rows.iter().for_each(|base| print!(" {:>12.2}", row.ratio(column, &[base])));
            println!();
        }
    }
}

/// Holds plimsoll to `gates`; true when it is within them, was not measured, or has nobody to be compared with.
pub fn hold(rows: &[Figures], gates: &[Gate]) -> bool {
    let Some(own) = rows.iter().find(|row| row.name == "plimsoll") else { return true };
    let mut passed = true;
    for gate in gates {
        let others: Vec<&Figures> = rows.iter().filter(|row| gate.than.contains(&row.name)).collect();
        if others.is_empty() {
            continue;
        }
        let base =
            if gate.than.len() > 1 { format!("the better of {}", gate.than.join(" and ")) } else { gate.than.concat() };
        let what = format!("{}, x {base}", gate.what);
        passed &= print_gate(&what, own.ratio(gate.column, &others), gate.most);
    }
    passed
}

fn print_gate(what: &str, measured: f64, most: f64) -> bool {
    let within = measured <= most;
    println!("{what:64} {measured:>9.2}  at most {most:>7.2}  {}", if within { "ok" } else { "MISSED" });
    within
}

fn gates(rows: &[Row], own: &Row) -> bool {
    let floor = &rows[0];
    let figures = [
        ("CPU saturated, x floor", ratio(&own.saturated, &floor.saturated), 1.25),
        ("CPU saturated, x better of nginx and HAProxy", ratio_to_better(rows, own, |row| &row.saturated), 0.85),
        ("CPU at 2,000/s, x floor", ratio(&own.fixed, &floor.fixed), 1.25),
        ("CPU at 2,000/s, x better of nginx and HAProxy", ratio_to_better(rows, own, |row| &row.fixed), 0.85),
        ("bytes per idle connection", own.idle.unwrap_or(f64::NAN), 2048.0),
        ("MB at rest (RSS)", own.rss_at_rest as f64 / 1e6, 8.0),
    ];
    println!("\nGates for plimsoll, with policy and metrics on");
    let mut passed = true;
    for (what, measured, gate) in figures {
        passed &= print_gate(what, measured, gate);
    }
    passed
}
