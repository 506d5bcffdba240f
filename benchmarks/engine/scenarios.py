"""What only the whole program can show: `claimscore map` and `run` as commands, stopped and
started again, beside the server's own counts."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import diskcache
import polars as pl
from measure import Process, Run, a_folder, run_client, run_process
from server import ROOT, Server

IN_FLIGHT = 64
PRICES = {"input": 1.0, "output": 4.0}
PROMPT = """
name = "split"
version = "v1"
system = "You break a sentence into single claims, one a line."
user = "$text"
[settings]
temperature = 0.0
max_tokens = 256
"""


class Outcome(NamedTuple):
    """What came out, in words, and whether it met the target."""

    text: str
    met: bool


class Job:
    """A table to map, with a cache of its own."""

    def __init__(self, folder: Path, n: int, ending: str = ".jsonl") -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.out = folder / "out.parquet"
        self._input = folder / f"in{ending}"
        self._prompt = folder / "split.toml"
        self._prompt.write_text(PROMPT)
        text = "House {} has a warm pool, a quiet garden and a room with a view."
        rows = pl.DataFrame({"id": range(n)}, schema={"id": pl.Int64})
        rows = rows.select(pl.format("r{}", "id").alias("id"), pl.format(text, "id").alias("text"))
        rows.write_csv(self._input) if ending == ".csv" else rows.write_ndjson(self._input)

    def command(self, server: Server, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "claimscore", "map", str(self._input)),
            *("--prompt", str(self._prompt), "--out", str(self.out), "--quiet"),
            *("--llm", "openai:gpt-4o-mini", "--base-url", server.base_url),
            *("--cache-namespace", "loopback"),  # the port changes, the keys in the table must not
            *("--max-concurrency", str(IN_FLIGHT), *options),
        ]

    def run(self, server: Server, *options: str, timeout_s: float = 600.0) -> Process:
        """To its end, whatever that is."""
        return run_process(self.command(server, *options), timeout_s, environment(self.folder))

    def status(self) -> dict[str, Any]:
        """What `claimscore status` says."""
        command = [sys.executable, "-m", "claimscore", "status", str(self.out), "--json"]
        its_environment = {**os.environ, **environment(self.folder)}
        shown = subprocess.run(command, cwd=ROOT, env=its_environment, capture_output=True)
        status: dict[str, Any] = json.loads(shown.stdout)
        return status

    def start(self, server: Server) -> subprocess.Popen[bytes]:
        """Without waiting."""
        return subprocess.Popen(
            self.command(server),
            cwd=ROOT,
            env={**os.environ, **environment(self.folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


class Verdicts(Job):
    """Summaries of three sentences each, none of them a copy of the source's: every one is judged
    with Yes or No."""

    def __init__(self, folder: Path, n: int) -> None:
        super().__init__(folder, 0)
        thing = "The {} of house {} is clean."
        with self._input.open("w") as stream:
            for number in range(n // 3):
                three = " ".join(thing.format(one, number) for one in ("room", "pool", "bar"))
                source = f"House {number} has been cleaned: its room, its pool and its bar."
                record = {"id": str(number), "source": source, "summary": three}
                stream.write(json.dumps(record) + "\n")

    def command(self, server: Server, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "claimscore", "run", str(self._input)),
            *("--metrics", "faithfulness", "--units", "sentences", "--out", str(self.out)),
            *("--verifier", "llm", "--prompt", "verify=minicheck", "--quiet", "--json"),
            *("--llm", "openai:bespoke-minicheck-7b", "--base-url", server.base_url),
            *("--max-concurrency", str(IN_FLIGHT), *options),
        ]


def environment(folder: Path) -> dict[str, str]:
    """Caches and limits of nobody else."""
    return {
        "OPENAI_API_KEY": "sk-benchmark",
        "CLAIMSCORE_CACHE_DIR": str(folder / "cache"),
        "CLAIMSCORE_STATE_DIR": str(folder / "state"),
    }


def wait_for(server: Server, n: int, process: subprocess.Popen[bytes]) -> None:
    """Until so many requests have arrived, or the process is over."""
    while process.poll() is None and server.stats()["received"] < n:
        time.sleep(0.005)


# -- stopped


def quota(scale: float) -> Outcome:
    """Half is answered, then the quota is gone; later it is filled."""
    n = round(1000 * scale)
    with a_folder() as folder:
        job = Job(folder / "job", n)
        with Server(folder, {"latency_s": 0.05, "quota_after": n // 2}) as server:
            first = job.run(server)
            refused = server.stats()["outcomes"].get("quota", 0)
            server.control(quota_after=None)
            second = job.run(server)
            stats = server.stats()
    text = (
        f"exit {first.code}, {refused} refused, {stats['paid_twice']} paid twice, "
        f"then exit {second.code}"
    )
    met = (first.code, second.code, stats["paid_twice"]) == (75, 0, 0) and refused <= IN_FLIGHT
    return Outcome(text, met)


def kill(scale: float) -> Outcome:
    """Twenty jobs, each killed once, at a moment drawn by seed, and started again."""
    trials, n, latency_s = max(1, round(20 * scale)), 1000, 0.1
    draw = random.Random(0)
    twice, late, same, finished = [], 0, 0, 0
    with a_folder() as folder:
        with Server(folder, {}) as server:
            whole = Job(folder / "whole", n)
            whole.run(server)
        for trial in range(trials):
            place = folder / str(trial)
            job = Job(place / "job", n)
            with Server(place, {"latency_s": latency_s}, log=True) as server:
                process = job.start(server)
                wait_for(server, 1, process)
                time.sleep(draw.uniform(0, n / IN_FLIGHT * latency_s))
                process.kill()
                killed_at = time.time()
                process.wait()
                time.sleep(2 * latency_s)  # what was in flight is answered, and paid
                finished += job.run(server).code == 0
                times = answer_times(server.log)
            again = [moments for moments in times.values() if len(moments) > 1]
            twice.append(sum(len(moments) - 1 for moments in again))
            late += sum(moments[0] < killed_at - 0.05 for moments in again)
            same += job.out.exists() and job.out.read_bytes() == whole.out.read_bytes()
    text = (
        f"paid twice at most {max(twice)}, of those {late} answered 50 ms before the kill; "
        f"{same} of {trials} the same bytes"
    )
    met = max(twice) <= IN_FLIGHT and not late and same == finished == trials
    return Outcome(text, met)


def answer_times(log: Path) -> dict[str, list[float]]:
    """When the server sent each question's answers."""
    times = defaultdict(list)
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if entry["outcome"] == "200":
            times[entry["content"]].append(entry["time"])
    return times


def interrupt(scale: float) -> Outcome:
    """Ctrl-C when half of the requests have arrived."""
    n = round(1000 * scale)
    with a_folder() as folder:
        job = Job(folder / "job", n)
        with Server(folder, {"latency_s": 0.3}) as server:
            process = job.start(server)
            wait_for(server, n // 2, process)
            began = time.perf_counter()
            process.send_signal(signal.SIGINT)
            code = process.wait(60)
            seconds = time.perf_counter() - began
            partial = not job.status()["complete"]
            second = job.run(server)
            twice = server.stats()["paid_twice"]
    text = (
        f"exit {code} in {seconds:.1f} s, {'' if partial else 'not '}marked partial, "
        f"{twice} paid twice, then exit {second.code}"
    )
    return Outcome(text, (code, second.code, twice) == (75, 0, 0) and partial and seconds <= 2)


def restart(scale: float) -> Outcome:
    """From the command to its first request, less the same for a job with little finished."""
    n = round(100_000 * scale)
    little, much = first_request_s(100), first_request_s(n)
    per_100_000 = (much - little) * 100_000 / n
    text = f"{per_100_000:.2f} s per 100,000 ({much:.2f} s, of it {little:.2f} s start-up)"
    return Outcome(text, per_100_000 <= 1)


def first_request_s(n_finished: int) -> float:
    """Stop after so many finished items (the quota is gone), start again, and wait."""
    with a_folder() as folder:
        job = Job(folder / "job", n_finished + 200)
        with Server(folder, {"quota_after": n_finished}) as server:
            job.run(server)
            server.control(quota_after=None, reset=True)
            began = time.time()
            job.run(server)
            return float(server.stats()["first_at_unix"] - began)


def verdicts(scale: float) -> Outcome:
    """A run that is killed, one that is interrupted three times and one with half of the money;
    each goes on until it is done."""
    n, latency_s, cap = round(900 * scale), 0.1, 0.0
    words, codes, twice, late = [], [], {}, 0
    with a_folder() as folder:
        for how, n_stops in (("kill -9", 1), ("Ctrl-C", 3), ("cap", 1)):
            job, at = Verdicts(folder / how / "job", n), 0.0
            settings = {"text": "Yes", "completion_tokens": 1, "latency_s": latency_s}
            with Server(folder / how, settings, log=True) as server:
                for number in range(n_stops):
                    if how == "cap":
                        capped = job.run(server, "--max-cost", f"{cap:.6f}", *price_options())
                        codes.append(capped.code)
                        share = bill(server.stats()) / cap
                        continue
                    process = job.start(server)
                    wait_for(server, (number + 1) * n // (n_stops + 1), process)
                    process.send_signal(signal.SIGKILL if how == "kill -9" else signal.SIGINT)
                    at = time.time()
                    codes.append(process.wait(60))
                    time.sleep(2 * latency_s)  # what was in flight is answered, and paid
                codes.append(job.run(server).code)
                times = answer_times(server.log)
                cap = bill(server.stats()) / 2
            again = [moments for moments in times.values() if len(moments) > 1]
            twice[how] = sum(len(moments) - 1 for moments in again)
            late += sum(moments[0] < at - 0.05 for moments in again)
            words.append(f"{how}: {twice[how]} of {len(times)} bought twice")
    met = codes == [-signal.SIGKILL, 0, 75, 75, 75, 0, 75, 0] and not late and share <= 1
    met = met and twice["kill -9"] <= IN_FLIGHT and not (twice["Ctrl-C"] or twice["cap"])
    return Outcome(f"{'; '.join(words)}, {share:.1%} of the cap", met)


def odd_verdicts(scale: float) -> Outcome:
    """Six verdicts are neither Yes nor No."""
    n = 180
    odd = {f"Claim: The pool of house {number} ": "odd" for number in range(6)}
    settings = {"text": "Yes", "completion_tokens": 1, "on_content": odd}
    with a_folder() as folder, Server(folder, settings) as server:
        done = Verdicts(folder / "job", n).run(server)
        stats = server.stats()
    times, n_odd = stats["received"] / n, stats["outcomes"].get("odd", 0)
    return Outcome(
        f"exit {done.code}, {times:.2f} times, {n_odd} odd", times <= 1.05 and n_odd >= 6
    )


# -- several servers

#: Seconds an answer of the three servers takes, and how many each answers at a time: few, so
#: that the client is not what bounds them.
LATENCIES_S = (0.2, 0.4, 0.8)
SLOTS = 16


def servers(scale: float) -> Outcome:
    """Three servers of different speed: the second is away for a while, the third dies."""
    n = round(5000 * scale)
    seconds = n / sum(SLOTS / latency_s for latency_s in LATENCIES_S)
    gone = ([], [(seconds / 5, seconds / 3)], [(seconds / 2, 1e6)])
    with a_folder() as folder, contextlib.ExitStack() as stack:
        job, running = Job(folder / "job", n), []
        for number, (latency_s, times) in enumerate(zip(LATENCIES_S, gone, strict=True)):
            place = folder / str(number)
            place.mkdir()
            outages = [{"how": "refuse", "from_s": a, "to_s": b} for a, b in times]
            settings = {"latency_s": latency_s, "outages": outages}
            running.append(stack.enter_context(Server(place, settings, log=True)))
        first, *others = running
        more = [word for server in others for word in ("--base-url", server.base_url)]
        done = job.run(first, *more, "--max-concurrency", str(SLOTS))
        span_s = max(server.stats()["last_paid_s"] for server in running[:2])  # the third is gone
        answers = [answer_times(server.log) for server in running]
        rows = pl.read_parquet(job.out)
    there_s = [span_s - sum(min(b, span_s) - a for a, b in times) for times in gone]
    could = [SLOTS * s / latency_s for s, latency_s in zip(there_s, LATENCIES_S, strict=True)]
    paid = [sum(map(len, times.values())) for times in answers]
    off = [p / sum(paid) / (c / sum(could)) - 1 for p, c in zip(paid, could, strict=True)]
    lost = n - rows["error"].is_null().sum()
    twice = sum(paid) - n
    text = (
        f"exit {done.code}, {lost} lost, {twice} paid twice, shares {off[0]:+.1%}, {off[1]:+.1%} "
        f"and {off[2]:+.1%} beside what each can, {sum(paid) / sum(could):.1%} of it all in all"
    )
    met = done.code == 0 and not lost and not twice and max(map(abs, off)) <= 0.1
    return Outcome(text, met)


# -- changed


def changes(scale: float) -> Outcome:
    """What is asked again when a row, the system prompt or the parser is another one."""
    n = round(1000 * scale)
    steps = (
        (n, ()),
        (n + 1, ()),
        (n + 1, ("--system", "Another system prompt.")),
        (n + 1, ("--parser", "length")),
    )
    sent = []
    with a_folder() as folder, Server(folder, {}) as server:
        for n_items, options in steps:
            before = server.stats()["received"]
            run_client(
                "claimscore",
                Path(sys.executable),
                {},
                n=n_items,
                concurrency=IN_FLIGHT,
                options=options,
                server=server,
                work=folder,
            )
            sent.append(server.stats()["received"] - before)
    text = f"{sent[1]:,}; {sent[2]:,} of {n + 1:,}; {sent[3]:,}"
    return Outcome(text, sent == [n, 1, n + 1, 0])


# -- large


def memory(scale: float) -> Outcome:
    few, many = round(10_000 * scale), round(100_000 * scale)
    small, large = peak_mb(few), peak_mb(many)
    growth_kb = (large - small) * 1024 / (many - few)
    text = f"{large:.0f} MB, {growth_kb:+.2f} KB an item"
    return Outcome(text, large <= 200 and growth_kb <= 1)


def million(scale: float) -> Outcome:
    small, large = peak_mb(round(10_000 * scale)), peak_mb(round(1_000_000 * scale))
    return Outcome(f"{large:.0f} MB, {large / small:.2f} x", large <= 1.3 * small)


def peak_mb(n: int) -> float:
    """The largest memory of a whole `map`."""
    with a_folder() as folder, Server(folder, {}) as server:
        done = Job(folder / "job", n).run(server, timeout_s=7200.0)
    if done.code:
        raise RuntimeError(f"map of {n} items: {done.ended}")
    return done.rss_mb


# -- all cached

#: All answers by diskcache alone, in the order they were stored in; its last line says how long
#: the loop took, by wall clock and CPU time.
BARE_LOOP = """
import json, sys, time
import diskcache
with diskcache.Cache(sys.argv[1]) as cache:
    keys = list(cache)
    began, cpu = time.perf_counter(), time.process_time()
    for key in keys:
        json.loads(cache[key])
    seconds = time.perf_counter() - began
print(json.dumps({"n": len(keys), "seconds": seconds, "cpu_s": time.process_time() - cpu}))
"""


def bare_loop(copy: Path) -> dict[str, float]:
    """What the loop over a diskcache said."""
    process = run_process([sys.executable, "-c", BARE_LOOP, str(copy)])
    assert process.result is not None, process.ended
    return process.result


def copy_answers(cache: Path, copy: Path) -> None:
    """The answers of a cache in a plain diskcache, as it is by default."""
    with diskcache.Cache(cache) as answers, diskcache.Cache(copy) as bare, bare.transact():
        for key in answers:
            bare[key] = answers[key]


def beside_loop(
    asked: list[Process | Run],
    loops: list[dict[str, float]],
    n: int,
    sent: int,
    *,
    least: float,
    more: str = "",
) -> Outcome:
    """The rate of claimscore, in turns with the loop, by the medians of wall and CPU time."""
    ratio = median(loop["seconds"] / run.wall_s for run, loop in zip(asked, loops, strict=True))
    cpu = median(loop["cpu_s"] / run.cpu_s for run, loop in zip(asked, loops, strict=True))
    speed = n / median(run.wall_s for run in asked)
    bare = n / median(loop["seconds"] for loop in loops)
    text = (
        f"{speed:,.0f}/s{more}, {ratio:.2f} x diskcache alone ({bare:,.0f}/s), {cpu:.2f} x by CPU"
    )
    return Outcome(f"{text}, {sent:,} sent", ratio >= least and not sent)


def warm(scale: float) -> Outcome:
    """The engine by its Python interface, in turns with the loop."""
    n, rounds = round(20_000 * scale), 5
    with a_folder() as folder, Server(folder, {}) as server:

        def ask() -> Run:
            return run_client(
                "claimscore",
                Path(sys.executable),
                {},
                n=n,
                concurrency=128,
                options=("--unlimited",),
                server=server,
                work=folder,
            )

        ask()
        copy_answers(folder / "cache", folder / "bare")
        server.control(reset=True)
        turns = [(ask(), bare_loop(folder / "bare")) for _ in range(rounds)]
        sent = server.stats()["received"]
    runs, loops = [run for run, _ in turns], [loop for _, loop in turns]
    return beside_loop([*runs], loops, n, sent, least=0.5)


def warm_map(scale: float) -> Outcome:
    """`claimscore map` over a CSV file from start to exit, in turns with the loop; start-up is the
    same command with one row."""
    n, rounds = round(100_000 * scale), 3
    done: list[Process | Run] = []
    starts, loops = [], []
    with a_folder() as folder, Server(folder, {}) as server:
        few, job = Job(folder / "few", 1, ".csv"), Job(folder / "job", n, ".csv")
        job.run(server, timeout_s=3600.0)
        first = job.out.read_bytes()
        job.out.unlink()
        shutil.copytree(job.folder / "cache", few.folder / "cache")
        copy_answers(job.folder / "cache", folder / "bare")
        server.control(reset=True)
        for _ in range(rounds):
            starts.append(few.run(server).wall_s)
            few.out.unlink()
            done.append(job.run(server))
            assert job.out.read_bytes() == first, "other bytes"
            job.out.unlink()
            loops.append(bare_loop(folder / "bare"))
        sent = server.stats()["received"]
    start = median(starts) / median(run.wall_s for run in done)
    more = f", {start:.0%} of it start-up"
    return beside_loop(done, loops, n, sent, least=0.4, more=more)


# -- money


def price_options() -> tuple[str, ...]:
    return ("--input-price", str(PRICES["input"]), "--output-price", str(PRICES["output"]))


def bill(stats: dict[str, Any]) -> float:
    """Dollars, as the server counts them."""
    tokens = {"input": stats["prompt_tokens"], "output": stats["completion_tokens"]}
    return float(sum(PRICES[kind] * count / 1e6 for kind, count in tokens.items()))


def budget(scale: float) -> Outcome:
    """Half of what the whole job costs; answers of 10 to 200 tokens."""
    n, settings = round(1000 * scale), {"latency_s": 0.05, "completion_tokens": [10, 200]}
    with a_folder() as folder:
        with Server(folder, settings) as server:
            Job(folder / "whole", n).run(server)
            cap = bill(server.stats()) / 2
        with Server(folder, settings) as server:
            capped = Job(folder / "capped", n)
            done = capped.run(server, "--max-cost", f"{cap:.6f}", *price_options())
            spent = bill(server.stats())
    return Outcome(
        f"exit {done.code}, {spent / cap:.1%} of the cap", done.code == 75 and spent <= cap
    )


def estimate(scale: float) -> Outcome:
    """`claimscore estimate` of a run before anything was asked, and after a fifth of it;
    then what the rest costs."""
    n = round(500 * scale)
    with a_folder() as folder, Server(folder, {"text": None}) as server:
        fifth, whole = (write_pairs(folder / f"{count}.jsonl", count) for count in (n // 5, n))

        def command(name: str, records: Path, *more: str) -> Process:
            options = [
                *("--metrics", "ds", "--tasks", "decompose", "--llm", "openai:gpt-4o-mini"),
                *("--base-url", server.base_url, *price_options(), "--json", *more),
            ]
            words = [sys.executable, "-m", "claimscore", name, str(records), *options]
            return run_process(words, 600, environment(folder))

        blind = command("estimate", whole)
        command("run", fifth, "--out", str(folder / "fifth"))
        before = bill(server.stats())
        informed = command("estimate", whole)
        command("run", whole, "--out", str(folder / "whole"))
        in_all = bill(server.stats())
    try:
        guessed = dollars(blind) / in_all
        expected = dollars(informed) / (in_all - before)
    except (KeyError, TypeError, ZeroDivisionError):
        return Outcome(f"no estimate ({informed.ended or informed.output[-200:]})", False)
    text = f"{expected:.2f} of the bill after a fifth; {guessed:.2f} before anything"
    return Outcome(text, abs(expected - 1) <= 0.15)


def write_pairs(path: Path, n: int) -> Path:
    """Pairs of summaries; texts of several lengths."""
    draw = random.Random(1)
    things = ("room", "pool", "bar", "garden", "breakfast", "view")
    with path.open("w") as stream:
        for number in range(n):
            sides = {
                side: " ".join(
                    f"The {thing} of house {number}{side[-1]} is clean and quiet."
                    for thing in draw.sample(things, draw.randint(1, 5))
                )
                for side in ("summary_a", "summary_b")
            }
            stream.write(json.dumps({"id": str(number), **sides}) + "\n")
    return path


def dollars(said: Process) -> float:
    """The expected cost in what `estimate --json` prints."""
    assert said.result is not None, said.ended
    found = said.result["total"]["usd"]
    return float(found["expected"] if isinstance(found, dict) else found)
