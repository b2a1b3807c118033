"""No code of ours unpickles, evaluates or hands to a shell what it reads, and no template prints text as markup."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for folder in ("src", "models", "bench", "examples") for path in (ROOT / folder).rglob("*.py"))
UNPICKLING = {"pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads", "joblib.load", "marshal.loads",
              "shelve.open", "numpy.load", "np.load", "dill.loads"}  # fmt: skip
OF_OUR_OWN_PROCESSES = {f"src/epochbench/measure/{name}.py" for name in ("worker", "within")}
"""What comes through the pipe between us and a worker that we started."""
RUNNING = {"eval", "exec", "compile", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "ET.parse"}


def calls(path):
    """(dotted name, call) of each call in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_of_ours_runs_nothing_that_it_reads(path):
    for name, words in calls(path):
        assert name not in RUNNING, name
        assert words.get("shell", "False") == "False", name
        assert words.get("allow_pickle", "False") == "False", name
        if name in UNPICKLING:
            assert str(path.relative_to(ROOT)) in OF_OUR_OWN_PROCESSES, name
        if name == "torch.load":
            assert words.get("weights_only") == "True"
        if name.endswith("Environment") and "autoescape" in words:
            assert words["autoescape"] == "True"


def test_the_loads_that_are_looked_for_are_there_to_be_found():
    found = {name for path in FILES for name, _ in calls(path)}
    assert {"torch.load", "cloudpickle.loads", "Environment"} <= found


@pytest.mark.parametrize("path", sorted((ROOT / "src/epochbench/report").glob("*.j2")), ids=lambda path: path.name)
def test_no_template_prints_text_as_markup(path):
    text = path.read_text("utf-8")
    for word in ("|safe", "| safe", "autoescape", "Markup", "xmlattr"):
        assert word not in text


@pytest.mark.parametrize("name", ["template.html.j2", "compare.html.j2"])
def test_each_page_forbids_all_that_it_does_not_need(name):
    text = (ROOT / "src/epochbench/report" / name).read_text("utf-8")
    policy = text.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0]
    parts = {part.split()[0]: part.split()[1:] for part in policy.split(";")}
    assert parts["default-src"] == parts["base-uri"] == parts["form-action"] == ["'none'"]
    assert parts.get("script-src", ["'{{", "script_hash", "}}'"]) == ["'{{", "script_hash", "}}'"]
    assert "unsafe-inline" not in "".join(parts.get("script-src", []))
    assert parts["img-src"] == ["data:"]
    assert text.index("Content-Security-Policy") < text.index("<title>")
