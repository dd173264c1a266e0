"""Names are checked without torch, and a wrong one says what to type instead."""

from freetickets.models import check_name, model_names
from freetickets.models.names import ARCHITECTURES

GOOD = """wrn-10-1 wrn-28-10 wrn-40-2 cifar-resnet-8 cifar-resnet-110 resnet-18 resnet-152 cnn cnn-8
mlp-300 mlp-300-100-50 fast-4-5-6 my_package.nets:build nets:Factory.small"""


def test_all_names_are_listed_and_good_ones_pass():
    assert len(model_names()) == len(ARCHITECTURES) + 1
    for name in GOOD.split():
        check_name(name)


MISSPELT = """wnr-28-10 wrn-28-10, wrn28-10 wrn-28-10, WRN-28-10 wrn-28-10, resnet50 resnet-50,
wideresnet-28-10 wrn-28-10, resnet_18 resnet-18, cifar-resnet20 cifar-resnet-20, cnn32 cnn-32,
mpl-300-100 mlp-300-100"""


def test_a_misspelt_or_strange_name_is_answered_with_what_to_type(refused):
    for name, meant in map(str.split, MISSPELT.split(",")):
        refused(f"did you mean '{meant}'", check_name, name)
    for name, advice in (
        *[(name, r"wrn-D-K.*package\.module:function") for name in ("", "vgg", "vgg-16", "-")],
        ("wrn-27-10", r"6n \+ 4, not 27: the nearest is 28"),
        ("wrn-4-10", "the nearest is 10"),
        ("wrn-28", "write it as wrn-D-K"),
        ("wrn-28-10-3", "write it as wrn-D-K"),
        ("wrn-28-0", "at least 1"),
        ("cifar-resnet-18", r"6n \+ 2, not 18: the nearest is 20"),
        ("resnet", r"resnet-18\|34"),
        ("resnet-20", "take one of 18, 34, 50, 101, 152"),
        ("mlp", "write it as mlp-A-B-..."),
        ("mlp-300-0", "at least 1"),
        ("cnn-1-2", "write it as cnn-W"),
        *[(name, "package.module:function") for name in ("nets.py:", "dir/nets:build", "a:b:c")],
    ):
        refused(advice, check_name, name)
