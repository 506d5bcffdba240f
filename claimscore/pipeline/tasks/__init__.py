"""The tasks that an LLM does for the metrics."""

from __future__ import annotations

from claimscore.pipeline.tasks.base import Task
from claimscore.pipeline.tasks.decompose import DECOMPOSE
from claimscore.pipeline.tasks.facts import FACTS_TASK
from claimscore.pipeline.tasks.judge import JUDGE
from claimscore.pipeline.tasks.negate import NEGATE
from claimscore.pipeline.tasks.paraphrase import PARAPHRASE
from claimscore.pipeline.tasks.questions import ANSWERS, QUESTIONS
from claimscore.pipeline.tasks.verify import VERIFY

#: Every task by name, in an order in which each comes after those it needs.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (DECOMPOSE, PARAPHRASE, NEGATE, FACTS_TASK, JUDGE, QUESTIONS, ANSWERS, VERIFY)
}
