"""What may import what, and where foreign packages have their one home."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import claimscore
from claimscore.pipeline.llm.providers.base import PROVIDERS

PACKAGE = Path(claimscore.__file__).parent
BASE = {"errors", "types", "config", "option", "tables", "__init__"}
BASE |= {"atomic", "csv_text", "file_lock", "object_stores"}

#: For each part (longest matching prefix), the parts it may import besides itself.
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": {"errors", "config", "cache", "functions", "notebook", "prompts"}
    | {"evaluation", "evaluation.support_benchmark", "pipeline", "pipeline.llm"},
    "functions": BASE  # stages without a run
    | {"notebook", "pipeline", "pipeline.llm", "pipeline.encoders", "pipeline.passes"}
    | {"calibration", "pipeline.tasks", "metrics", "records"},
    "notebook": BASE | {"console", "metrics", "pipeline", "records", "runs", "report", "stats"},
    "__main__": {"cli"},
    "errors": set(),
    "types": {"errors"},
    "config": {"errors", "types", "option"},
    "option": {"errors"},
    "tables": {"errors", "types"},
    "atomic": {"errors"},
    "csv_text": set(),
    "file_lock": set(),
    "object_stores": {"errors"},
    "http_headers": {"types"},
    "http_policy": {"errors"},
    "retry": {"errors"},
    "text": BASE,
    "minilm": {"errors"},
    "blocks": BASE | {"text"},
    "evidence": {"blocks", "text"},
    "claim_checks": BASE | {"text"},
    "calibration": BASE | {"text", "metrics"},
    "prompts": BASE,
    "cache": BASE,
    "records": BASE,
    "runs": BASE | {"cache"},
    "stats": set(),
    "metrics": BASE | {"text", "blocks"},
    "metrics.bert_score": BASE | {"metrics", "pipeline.encoders"},  # its function asks a model
    "baseline": BASE | {"text", "minilm"},
    "baseline.provider": BASE | {"text", "minilm", "baseline", "pipeline.llm"},  # it is a vendor
    "pipeline.encoders": BASE | {"http_policy", "retry", "text", "minilm", "pipeline.llm"},
    "pipeline.encoders.token_encoder": BASE | {"blocks", "pipeline.encoders"},  # spans of pairs
    "pipeline.llm": BASE | {"http_headers", "http_policy", "retry", "cache", "text"},
    "pipeline.tasks": BASE
    | {"calibration", "claim_checks", "evidence", "text", "metrics", "pipeline.llm"},
    "pipeline.passes": BASE
    | {"text", "blocks", "evidence", "metrics", "pipeline.encoders", "pipeline.tasks"}
    | {"calibration"},
    "pipeline": BASE
    | {"claim_checks", "cache", "text", "prompts", "records", "runs", "metrics", "stats"}
    | {"baseline", "calibration"}
    | {"pipeline.llm", "pipeline.encoders", "pipeline.tasks", "pipeline.passes"},
    "report": BASE
    | {"blocks", "calibration", "claim_checks", "console", "metrics", "stats", "runs"}
    | {"report.llm_calls"},
    "report.llm_calls": BASE  # prompts are rendered again, answers looked up
    | {"report", "runs", "cache", "prompts", "metrics"}
    | {"pipeline", "pipeline.llm", "pipeline.tasks"},
    "report.evaluation_page": BASE | {"report", "evaluation", "metrics"},
    "evaluation": BASE | {"calibration", "text", "metrics", "stats", "records", "runs"},
    "evaluation.support_benchmark": BASE  # it asks verifiers itself
    | {"text", "evaluation", "functions", "metrics", "stats", "records"},
    "evaluation.prompt_examples": BASE  # it asks a language model
    | {"text", "evidence", "evaluation", "metrics", "prompts"}
    | {"pipeline", "pipeline.llm", "pipeline.tasks"},
    "training": BASE | {"text", "metrics", "evaluation", "pipeline.encoders", "pipeline.passes"},
    "console": {"__init__", "stats"},
    "console.evaluations": {"console", "evaluation"},
    "commands": BASE
    | {"text", "console", "console.evaluations", "cache", "prompts", "report", "training"}
    | {"pipeline", "pipeline.encoders", "pipeline.llm", "pipeline.passes", "pipeline.tasks"}
    | {"runs", "records"}
    | {"evaluation", "evaluation.support_benchmark", "evaluation.prompt_examples", "metrics"}
    | {"report.evaluation_page"},
    "cli": {"__init__", "errors", "commands", "config", "console"},
}

#: Packages that only one place may import.
HOMES: dict[str, tuple[str, ...]] = {
    "fcntl": ("file_lock",),
    "openai": ("pipeline.llm.providers.openai", "pipeline.llm.providers.azure"),
    "httpx2": (
        "http_policy",
        "pipeline.llm.providers.connection",
        "pipeline.llm.providers.server",
        "pipeline.llm.batch_jobs.server",
    ),
    "anthropic": ("pipeline.llm.providers.anthropic",),
    "genai_prices": ("pipeline.llm.budget.pricing",),
    "torch": ("pipeline.encoders", "training", "metrics.summac_convolution"),
    "transformers": ("pipeline.encoders",),
    "huggingface_hub": ("minilm", "pipeline.encoders"),
    "safetensors": ("baseline.parser", "pipeline.encoders", "metrics.summac_convolution"),
    "diskcache": ("cache.store",),
    "obstore": ("runs.remote",),
    "boto3": ("runs.remote",),
    "botocore": ("runs.remote",),
    "orjson": (
        *("cache.store", "pipeline.llm.providers.schema", "pipeline.llm.providers.server"),
        "pipeline.llm.budget.ledger",
    ),
    "tenacity": ("retry",),
    "nltk": ("text", "metrics.ds", "metrics.meteor"),
    "rouge_score": ("metrics.rouge",),
    "ot": ("metrics.movers",),
    "spacy": ("metrics.ner_overlap",),
    "jinja2": ("report.html_page",),
    "ray": ("pipeline.ray",),
    "rich": ("console",),
    "click": ("cli", "commands"),
    "pydantic": ("prompts.file_model",),
    "pydantic_core": ("prompts.output",),
    "asyncio": (),
    "pickle": (),
}


def modules() -> list[str]:
    """Every module of the package, without the leading `claimscore.`."""
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" and parts[:-1] else parts))
    return names


def source(module: str) -> str:
    path = PACKAGE.joinpath(*module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


@functools.cache
def imports(module: str) -> list[str]:
    """The modules that a module imports when it runs, inside functions too."""
    return list(_imported(ast.parse(source(module))))


def _imported(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            yield from {_module(child.module or "", alias.name) for alias in child.names}
        else:
            yield from _imported(child)


def _module(package: str, name: str) -> str:
    """What `from package import name` loads: a module of ours where it is one."""
    path = PACKAGE.parent.joinpath(*package.split("."), name)
    return f"{package}.{name}" if path.with_suffix(".py").is_file() or path.is_dir() else package


def part(module: str) -> str:
    """The part of the table that a module belongs to."""
    fitting = [name for name in MAY_IMPORT if module == name or module.startswith(name + ".")]
    return max(fitting, key=len)


def may_import(module: str, imported: str) -> bool:
    own = part(module)
    target = part(imported.partition(".")[2] or "__init__")
    return target == own or target in MAY_IMPORT[own]


def at_home(module: str, imported: str) -> bool:
    homes = HOMES.get(imported.partition(".")[0])
    return homes is None or any(module == home or module.startswith(home + ".") for home in homes)


def test_imports_point_downwards() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module in modules()
        for imported in imports(module)
        if imported.partition(".")[0] == "claimscore" and not may_import(module, imported)
    ]
    assert not wrong


def test_modules_import_each_other_in_one_direction() -> None:
    needed = {
        module: {imported.partition(".")[2] for imported in imports(module)} & set(modules())
        for module in modules()
    }
    order = graphlib.TopologicalSorter(needed).static_order()  # CycleError names the circle
    assert sorted(order) == sorted(modules())


def test_foreign_packages_have_one_home() -> None:
    """What may change under us is met in one place."""
    wrong = [
        f"{module} imports {imported}: see HOMES"
        for module in modules()
        for imported in imports(module)
        if not at_home(module, imported)
    ]
    assert not wrong


_VENDOR = re.compile(rf"({'|'.join(PROVIDERS)})(-batch)?(:.*)?")


def named_vendors(module: str) -> list[str]:
    """The texts of a module that name a vendor; documentation and what help pages say left out."""
    tree = ast.parse(source(module))
    nodes = list(ast.walk(tree))
    helps = {node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "help"}
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in helps
        if _VENDOR.fullmatch(node.value) and "MODEL" not in node.value
    ]


def test_vendors_are_named_by_their_providers_alone() -> None:
    """A new vendor is one file and one entry in `PROVIDERS`."""
    homes = ("pipeline.llm.providers.", "baseline.provider")
    others = [module for module in modules() if not module.startswith(homes)]
    naming = {module: names for module in others if (names := named_vendors(module))}
    assert naming.pop("config") == ["builtin"]  # the default
    assert not naming


def test_the_environment_is_read_in_one_place() -> None:
    readers = [m for m in modules() if "os.environ" in source(m) or "getenv" in source(m)]
    assert readers == ["config"]
