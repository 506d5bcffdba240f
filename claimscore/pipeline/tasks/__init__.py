"""The tasks that an LLM does for the metrics."""

from __future__ import annotations

from claimscore.pipeline.tasks.base import Task
from claimscore.pipeline.tasks.decompose import DECOMPOSE
from claimscore.pipeline.tasks.questions import ANSWERS, JUDGE, QUESTIONS
from claimscore.pipeline.tasks.rewriting import FACTS_TASK, NEGATE, PARAPHRASE
from claimscore.pipeline.tasks.verify import VERIFY

#: Every task by name, in an order in which each comes after those it needs.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (DECOMPOSE, PARAPHRASE, NEGATE, FACTS_TASK, JUDGE, QUESTIONS, ANSWERS, VERIFY)
}
