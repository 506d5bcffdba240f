"""Claims beside those that people made: FActScore, RoSE, REALSumm and Factcheck-GPT.

Papers: Min et al. 2023 (FActScore), Liu et al. 2023 (RoSE), Bhandari et al. 2020 (REALSumm), Wang
et al. 2023 (Factcheck-GPT). None of them reports how close other claims come to the human ones.

Data: texts with their human claims, as `papers.readers` makes them, a file a data set.

Time: under a minute for `builtin` and all 4,126 texts.

    python -m papers.readers rose acu-cnndm-test.json --out rose.jsonl
    python -m papers.claims rose.jsonl --out runs/rose
    python -m papers.claims rose.jsonl --out runs/mini --llm builtin --llm openai:gpt-4.1-mini \
        --prompt v1 --prompt v3 --max-cost 2
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import claimscore
from claimscore.console.evaluations import print_sections
from papers.command import one_line_errors


def measure(
    records: Path, out: Path, llms: Sequence[str], prompts: Sequence[str], **options: object
) -> claimscore.EvaluationResult:
    """Decompose the texts of a data set and compare the claims with the human ones.

    A system is a model with a version of the prompt `decompose`, or with its own where none is
    named; `builtin` has its own alone. `options` are those of `claimscore.evaluate`.
    """
    runs = []
    for llm in llms:
        for prompt in prompts if prompts and llm != "builtin" else [None]:
            name = re.sub(r"[^\w-]+", "-", f"{llm} {prompt}" if prompt else llm)
            named = {"prompts": {"decompose": prompt}} if prompt else {}
            run = claimscore.evaluate(
                records,
                (),
                tasks=("decompose",),
                out=out / name,
                llm=llm,
                progress=False,
                **named,
                **options,
            )
            runs.append(str(run.out))
    return claimscore.evaluate_claims(claimscore.ClaimsConfig((str(records), *runs)))


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    """Print the measures of each data set, and write its tables."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("input", type=Path, nargs="+")
    options.add_argument("--out", type=Path, required=True, help="Folder of runs and tables.")
    options.add_argument("--llm", action="append", help="Makes the claims; may be repeated.")
    options.add_argument("--prompt", action="append", help="Version of decompose; repeatable.")
    options.add_argument("--max-cost", type=float, help="Dollars for each run.")
    options.add_argument("--max-concurrency", type=int, default=64, help="Most in flight.")
    given = options.parse_args(arguments)
    limits = {"max_cost": given.max_cost, "max_concurrency": given.max_concurrency}
    for records in given.input:
        out = given.out / records.stem
        result = measure(records, out, given.llm or ["builtin"], given.prompt or [], **limits)
        result.write(out)
        print(f"{records.stem}\n")
        print_sections(result.sections)


if __name__ == "__main__":
    main()
