from dataclasses import asdict, fields, replace

import pytest
import yaml

from freetickets.cli.parser import attribute_texts
from freetickets.config import Config, read_config
from freetickets.data import get_spec
from freetickets.methods import DST, EDST, METHODS, RECIPES

FASHION = get_spec("fashion-mini")


def test_nothing_is_left_open_and_what_is_given_wins_even_if_it_is_zero():
    config = Config(dataset="cifar10").resolved(get_spec("cifar10"))
    recipe = RECIPES["cifar"]
    assert config.recipe == "cifar"
    for name in ("batch_size", "lr", "momentum", "weight_decay", "label_smoothing", "validation"):
        assert getattr(config, name) == getattr(recipe, name)
    assert config.augmentation == "reflect-crop-flip"
    assert config.make_method() == EDST()
    assert config.resolved(get_spec("cifar10")) == config
    given = {"momentum": 0.0, "validation": 0.0, "weight_decay": 0.0, "recipe": "imagenet"}
    resolved = Config(**given).resolved(FASHION)
    assert given.items() <= vars(resolved).items()
    assert resolved.label_smoothing == RECIPES["imagenet"].label_smoothing


@pytest.mark.parametrize("method", METHODS)
def test_settings_come_back_from_plain_yaml(tmp_path, method):
    config = Config(method=method, model_options={"dropout": 0.1}, epochs=3).resolved(FASHION)
    (tmp_path / "c.yaml").write_text(config.as_yaml())
    assert list(yaml.safe_load(config.as_yaml())) == [field.name for field in fields(Config)]
    again = Config(**read_config(tmp_path / "c.yaml"))
    assert again.differences(config) == []
    assert again.make_method() == config.make_method()
    assert again.resolved(FASHION).differences(config) == []


def test_differences_name_what_changes_the_result_and_nothing_else():
    config = Config().resolved(FASHION)
    free = {"output": "x", "device": "cpu", "workers": 3, "data_dir": "y"}
    free |= {"checkpoint_seconds": 1, "trajectory": 2}
    assert config.differences(replace(config, **free)) == []
    assert config.differences(replace(config, lr=0.7)) == ["lr: 0.05 -> 0.7"]
    other = dict.fromkeys(("amp", "sync_batchnorm", "nesterov"), True)
    other |= dict.fromkeys(("momentum", "label_smoothing", "validation"), 0.7)
    texts = "dataset validation_data model augmentation task combine method optimizer preset recipe"
    other |= dict.fromkeys((*texts.split(), "backend"), "other")
    other |= {"options": {**config.options, "rate": 0.1}, "model_options": {"dropout": 0.3}}
    other |= {"task_options": {"class_weights": [1.0]}, "lr_factors": {"norm-bias": 64.0}}
    for name in {field.name for field in fields(Config)} - set(free):
        changed = replace(config, **{name: other.get(name, 7)})
        assert len(config.differences(changed)) == 1, name
        assert config.identity != changed.identity, name


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("lr: 1e-3", "lr", 0.001),  # YAML 1.1 takes this for text
        ("lr: 1", "lr", 1.0),
        ("batch_size: 64", "batch_size", 64),
        ("epochs: null", "epochs", None),
        ("amp: yes", "amp", True),
        ("options: {exclude: [a, b]}", "options", {"exclude": ["a", "b"]}),
        ("lr_factors: {norm-bias: 64, fc: 1e-1}", "lr_factors", {"norm-bias": 64.0, "fc": 0.1}),
    ],
)
def test_values_of_a_file_get_the_type_of_their_setting(tmp_path, text, name, value):
    (tmp_path / "c.yaml").write_text(text)
    found = getattr(Config(**read_config(tmp_path / "c.yaml")), name)
    assert found == value
    assert type(found) is type(value)


def test_a_setting_of_another_type_or_that_does_not_go_with_others_is_one_line(refused):
    for settings, message in (
        ({"lr": "fast"}, "lr must be a number, not 'fast'"),
        ({"batch_size": 1.5}, "batch_size must be a whole number, not 1.5"),
        ({"seed": None}, "seed must be a whole number, not None"),
        ({"nesterov": 1}, "nesterov must be true or false, not 1"),
        ({"lr_factors": {"bias": "high"}}, "lr_factors.bias must be a number, not 'high'"),
        ({"lr_factors": {"norm-bias": 0}}, "lr_factors.norm-bias must be positive, not 0"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov needs momentum: give --momentum"),
        ({"recipe": "fast", "momentum": 0.0}, "nesterov needs momentum: give --momentum"),
        ({"method": "dst", "options": {"tickets": "two"}}, "tickets must be a whole number"),
        ({"method": "dst", "options": {"exclude": "fc1"}}, "exclude must be a list, not 'fc1'"),
        ({"method": "dst", "options": {"rat": 1}}, "unknown option of dst 'rat': did you mean"),
    ):
        refused(f"^{message}", lambda given=settings: Config(**given).resolved(FASHION))


def test_settings_that_only_some_ask_for_may_be_left_out_also_of_older_runs():
    assert Config(method="dst", options={"interval": None}).make_method() == DST()
    without = Config(recipe="fast", momentum=0.0, optimizer="adam").resolved(FASHION)
    assert without.nesterov  # which only SGD asks for
    for kind in (Config, *METHODS.values()):
        assert set(attribute_texts(kind)) >= {field.name for field in fields(kind)}
    config = Config(recipe="small").resolved(FASHION)
    older = asdict(config)
    for name in ("nesterov", "lr_factors"):
        assert older.pop(name) is None
    older["options"].pop("refinement_height")
    assert Config(**older).differences(config) == []
    assert Config(**older).identity == config.identity == "01dbc20795dae148"


@pytest.mark.parametrize(
    ("dataset", "augmentation"),
    [("cifar10", "translate-alternate"), ("svhn", "translate"), ("imagenet", "imagenet")],
)
def test_the_fast_recipe_moves_images_and_mirrors_those_that_may_be(dataset, augmentation):
    spec = get_spec(dataset)
    config = Config(dataset=dataset, recipe="fast").resolved(spec)
    assert config.augmentation == augmentation
    assert (config.nesterov, config.momentum, config.validation) == (True, 0.9, 0.0)
    features = replace(spec, mean=(), std=(), augmentation="none")
    assert Config(recipe="fast").resolved(features).augmentation == "none"
    own = Config(recipe="fast", augmentation="pad-crop-flip", nesterov=False).resolved(spec)
    assert (own.augmentation, own.nesterov) == ("pad-crop-flip", False)
