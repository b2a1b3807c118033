"""The recipe: what it is made of, what it says of itself, and what is refused where it is made."""

import dataclasses

import pytest

from epochbench import ARTICLE, Recipe
from epochbench.recipe import RECIPES, TUNED, contender_id


def test_every_recipe_is_found_under_its_own_name_and_the_articles_comes_first():
    assert list(RECIPES)[:2] == ["article", "tuned"]
    assert all(recipe.name == name for name, recipe in RECIPES.items())


def test_a_recipe_of_one_measure_differs_from_the_articles_in_that_measure_alone():
    for name, recipe in RECIPES.items():
        if name in ("article", "tuned"):
            continue
        fields = [field.name for field in dataclasses.fields(Recipe)]
        differing = {one for one in fields if getattr(recipe, one) != getattr(ARTICLE, one)} - {"name"}
        assert len(differing) == (2 if name == "pinned" else 1), name  # pinned batches come from the workers


def test_the_articles_recipe_leaves_nothing_out_and_the_tuned_one_may():
    assert [name for name, recipe in RECIPES.items() if recipe.lenient] == ["tuned"]
    assert TUNED.read_loss_each_step is False


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("article", {"read_loss_each_step": True}),
        ("unread", {}),
        ("tuned", {"resident": True, "channels_last": True}),
        ("cuda-graphs", {"read_loss_each_step": True, "compile": "reduce-overhead"}),
        ("batch-x4", {"read_loss_each_step": True, "batch_factor": 4}),
        ("one-thread", {"read_loss_each_step": True, "threads": 1}),
    ],
)
def test_the_settings_are_what_differs_from_a_plain_loop(name, settings):
    assert RECIPES[name].settings == settings


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("precision", "fp8", "Recipe.precision must be one of fp32, tf32, bf16, fp16, not 'fp8'"),
        ("compile", "max", "Recipe.compile must be one of None, default, reduce-overhead, not 'max'"),
        ("workers", -1, "Recipe.workers must be a whole number from 0, not -1"),
        ("workers", 1.5, "Recipe.workers must be a whole number from 0, not 1.5"),
        ("batch_factor", 0, "Recipe.batch_factor must be a whole number from 1, not 0"),
        ("batch_factor", True, "Recipe.batch_factor must be a whole number from 1, not True"),
        ("threads", 0, "Recipe.threads must be a whole number from 1, not 0"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_the_field_and_the_value(field, value, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Recipe(name="odd", **{field: value})
    assert str(caught.value) == message


def test_a_device_under_the_articles_recipe_is_called_as_the_device_is():
    assert [contender_id("cuda", name) for name in ("article", "tuned")] == ["cuda", "cuda-tuned"]
