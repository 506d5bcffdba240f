"""Claims beside those that people made: FActScore, RoSE, REALSumm and Factcheck-GPT.

Papers: Min et al. 2023 (FActScore), Liu et al. 2023 (RoSE), Bhandari et al. 2020 (REALSumm), Wang
et al. 2023 (Factcheck-GPT). None of them reports how close other claims come to the human ones.

Data: texts with their human claims, as `papers.readers` makes them, a file a data set.

Time: under a minute for `builtin` and all 4,126 texts.

    python -m papers.readers rose acu-cnndm-test.json --out rose.jsonl
    python -m papers.claims rose.jsonl --out runs/rose
    python -m papers.claims rose.jsonl --out runs/mini --llm openai:gpt-4.1-mini --max-cost 2
"""

from __future__ import annotations

import argparse
from pathlib import Path

import claimscore
from papers.command import one_line_errors


def measure(records: Path, out: Path, **llm: object) -> claimscore.EvaluationResult:
    """Decompose the texts of a data set and compare the claims with the human ones."""
    made = claimscore.evaluate(
        records, (), tasks=("decompose",), out=out / "run", progress=False, **llm
    )
    config = claimscore.ClaimsConfig((str(records), str(made.out)))
    return claimscore.evaluate_claims(config)


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    """Print the measures of each data set, and write its tables."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("input", type=Path, nargs="+")
    options.add_argument("--out", type=Path, required=True, help="Folder of runs and tables.")
    options.add_argument("--llm", default="builtin", help="Makes the claims.")
    options.add_argument("--max-cost", type=float, help="Dollars for each data set.")
    given = options.parse_args(arguments)
    for records in given.input:
        out = given.out / records.stem
        result = measure(records, out, llm=given.llm, max_cost=given.max_cost)
        result.write(out)
        print(f"{records.stem}\n\n{result.markdown()}")


if __name__ == "__main__":
    main()
