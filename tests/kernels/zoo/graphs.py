"""Random networks: programs that are drawn line by line, valid by construction."""

from collections.abc import Callable
from math import gcd

from hypothesis import strategies as st

from .program import Program, Value, Writer, together

__all__ = ["Program", "programs"]

_MOST_CHANNELS, _LARGEST_MAP, _MOST_SAMPLES = 16, 14, 8

# An operation can be applied to some values, and writes some lines.
Operation = Callable[[Writer, Value], None]
_OPERATIONS: list[tuple[int, Callable[[Writer, Value], bool], Operation]] = []


def operation(applies, weight=1):
    """Registers an operation, to be drawn so often where it applies."""

    def register(function):
        _OPERATIONS.append((weight, applies, function))
        return function

    return register


def is_map(w, v):
    return v.is_map


def always(w, v):
    return True


def _out(size, kernel, stride, padding, dilation):
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@operation(is_map, weight=6)
def convolve(w, v):
    c, h, wide = v.shape
    reach = min(h, wide)
    fitting = [
        (name, s)
        for name, s in w.shared
        if s["inputs"] == c and reach + 2 * s["padding"] > s["dilation"] * (s["kernel"] - 1)
    ]
    if fitting and w.draw(st.integers(0, 3)) == 0:
        name, s = w.pick(fitting)
    else:
        padding, dilation = w.pick([0, 1, 1, 1, 2]), w.pick([1, 1, 1, 2])
        most = min(5, (reach + 2 * padding - 1) // dilation + 1)
        kernel = w.pick([size for size in (1, 2, 3, 3, 3, 4, 5) if size <= most])
        stride, groups = w.pick([1, 1, 1, 1, 1, 2, 3]), gcd(c, w.pick([1, 1, 1, 1, 2, c]))
        # Of fewer than four weights a sparse layer might keep none.
        outputs = groups * w.draw(st.integers(1 if c > 3 else 4, 8))
        outputs = min(outputs, max(groups, 4, _MOST_CHANNELS // groups * groups))
        s = {"inputs": c, "outputs": outputs, "kernel": kernel, "stride": stride,
             "padding": padding, "dilation": dilation}  # fmt: skip
        options = f"dilation={dilation}, groups={groups}, bias={w.flag()}"
        name = w.layer(f"nn.Conv2d({c}, {outputs}, {kernel}, {stride}, {padding}, {options})")
        w.shared.append((name, s))
    sizes = (_out(n, s["kernel"], s["stride"], s["padding"], s["dilation"]) for n in (h, wide))
    w.save(v)
    w.new(f"{name}({v.name})", v.samples, (s["outputs"], *sizes))


# A BatchNorm of two values makes -1 and 1 of them, and has no gradient.
@operation(lambda w, v: v.is_map and v.shape[1] * v.shape[2] >= 4, weight=3)
def normalize(w, v):
    c = v.shape[0]
    kinds = ["nn.BatchNorm2d({c})"] * 3 + [
        "nn.BatchNorm2d({c}, affine=False)",
        "nn.BatchNorm2d({c}, track_running_stats=False)",
        "nn.BatchNorm2d({c}, eps=0.1, momentum=None)",
        "nn.GroupNorm(1, {c})",
    ]
    name = w.layer(w.pick(kinds).format(c=c))
    w.save(v)
    w.same(f"{name}({v.name})", v)


@operation(always, weight=4)
def activate(w, v):
    forms = [
        "nn.ReLU()", "nn.SiLU()", "nn.GELU()", "nn.LeakyReLU(0.1)", "nn.Tanh()", "nn.Hardswish()",
        "F.relu({v})", "torch.relu({v})", "F.gelu({v})", "torch.sigmoid({v})", "F.leaky_relu({v})",
        "{v}.relu()", "{v}.tanh()", "{v}.clamp(-1, 1)", "{v}.abs()", "-{v}",
    ]  # fmt: skip
    form = w.pick(forms)
    text = f"{w.layer(form)}({v.name})" if form.startswith("nn.") else form.format(v=v.name)
    w.save(v, w.same(text, v))


@operation(always, weight=3)
def activate_in_place(w, v):
    forms = [
        "nn.ReLU(inplace=True)", "nn.LeakyReLU(0.2, inplace=True)", "F.relu({v}, inplace=True)",
        "{v}.relu_()", "torch.relu_({v})", "{v}.clamp_(-0.5, 0.8)", "{v}.mul_(0.5)", "{v}.add_(1)",
        "{v}.neg_()",
    ]  # fmt: skip
    form = w.pick(forms)
    text = f"{w.layer(form)}({v.name})" if form.startswith("nn.") else form.format(v=v.name)
    w.write(text, v, named=w.flag())
    if "relu" in text.lower() or form.startswith("nn."):
        w.save(v)


@operation(lambda w, v: v.is_map and v.shape[0] > 1)
def write_to_a_part(w, v):
    c, h, _ = v.shape
    k = w.draw(st.integers(1, c - 1))
    part = w.pick([f"[:, :{k}]", f"[:, {k}:]", f".narrow(1, 0, {k})", f"[:, :, :{max(1, h // 2)}]"])
    w.write(f"{v.name}{part}{w.pick(['.mul_(2)', '.zero_()', '.add_(0.5)', '.neg_()'])}", v)


@operation(always, weight=5)
def combine(w, v):
    other = w.value(w.partners(v))
    samples, shape = together(v, other) or (0, ())
    form = w.pick(
        ["{a} + {b}"] * 4 + ["{b} + {a}", "torch.add({a}, {b})", "{a}.add({b})", "{a} - {b}",
         "torch.add({a}, {b}, alpha=0.5)", "{a} * torch.sigmoid({b})", "{a} * {b}",
         "torch.maximum({a}, {b})"]
    )  # fmt: skip
    if not any(sign in form for sign in ("+", "add", "-")):
        w.save(v, other)
    w.new(form.format(a=v.name, b=other.name), samples, shape)


@operation(always, weight=2)
def combine_in_place(w, v):
    fitting = [
        other
        for other in w.partners(v)
        # Writing to what is read at the same time, elsewhere, is no valid PyTorch.
        if together(v, other) == (v.samples, v.shape) and (other.base != v.base or other == v)
    ]
    other = w.value(fitting)
    form = w.pick(["{a} += {b}", "{a} += {b}", "{a}.add_({b})", "{a} -= {b}", "{a} *= {b}"])
    if "*" in form:
        w.save(other)
    w.write(form.format(a=v.name, b=other.name), v)


@operation(is_map, weight=2)
def combine_with_parameter(w, v):
    c, h, wide = v.shape
    shape = w.pick([(1, c, 1, 1), (1, c, h, wide), (c, 1, 1), (1, 1, h, wide), (1,), (), (wide,)])
    name = w.layer(f"nn.Parameter(torch.randn({shape}))")
    form = w.pick(["{a} + {p}", "{p} + {a}", "{a} * {p}", "torch.add({a}, {p})"])
    if "*" in form:
        w.save(v)
    w.same(form.format(a=v.name, p=name), v)


@operation(is_map)
def add_layer_of_parameter(w, v):
    """A batch of one that comes from a parameter, by way of a convolution."""
    c, h, wide = v.shape
    template = w.layer(f"nn.Parameter(torch.randn(1, 2, {h}, {wide}))")
    name = w.layer(f"nn.Conv2d(2, {c}, 3, padding=1)")
    w.new(f"{name}({template})", 0, v.shape)


@operation(always, weight=2)
def combine_with_number(w, v):
    form = w.pick(
        ["{v} + 0.5", "2 * {v}", "{v} + {v}.shape[1]", "{v}.size(-1) + {v}", "{v} / {v}.shape[1]",
         "1 - {v}", "torch.add({v}, 3)"]
    )  # fmt: skip
    w.same(form.format(v=v.name), v)


@operation(is_map, weight=2)
def concatenate(w, v):
    fitting = [
        other for other in w.values
        if other.is_map and other.samples == v.samples and other.shape[1:] == v.shape[1:]
    ]  # fmt: skip
    others = [w.value(fitting) for _ in range(w.pick([1, 1, 2]))]
    channels = v.shape[0] + sum(other.shape[0] for other in others)
    names = ", ".join(value.name for value in (v, *others))
    if channels <= _MOST_CHANNELS:
        w.new(f"torch.cat([{names}], {w.pick(['1', 'dim=1', '-3'])})", v.samples,
              (channels, *v.shape[1:]))  # fmt: skip
    else:
        w.new(f"torch.cat(({v.name}, {v.name}.flip(2)[:, :, :1]), 2)", v.samples,
              (v.shape[0], v.shape[1] + 1, v.shape[2]))  # fmt: skip


@operation(lambda w, v: v.is_map and v.shape[0] % 2 == 0)
def split(w, v):
    half = (v.shape[0] // 2, *v.shape[1:])
    form = w.pick(["{v}.chunk(2, dim=1)[{i}]", "torch.split({v}, {half}, 1)[{i}]"])
    for i in (0, 1):
        w.new(form.format(v=v.name, i=i, half=half[0]), v.samples, half, like=v)
    w.save(v)  # to write to one of several views is forbidden where there are gradients


@operation(is_map)
def cut(w, v):
    c, h, wide = v.shape
    forms = [
        (f"[:, :{(c + 1) // 2}]", ((c + 1) // 2, h, wide)),
        ("[:, ::2]", ((c + 1) // 2, h, wide)),
        ("[:, :, ::2, ::2]", (c, (h + 1) // 2, (wide + 1) // 2)),
        (f"[..., :{max(1, wide - 1)}]", (c, h, max(1, wide - 1))),
    ]
    text, shape = w.pick(forms)
    w.new(f"{v.name}{text}", v.samples, shape, like=v)


@operation(is_map, weight=2)
def pool(w, v):
    c, h, wide = v.shape
    if min(h, wide) < 3:
        w.save(v)
        w.new(f"F.adaptive_max_pool2d({v.name}, (2, 1))", v.samples, (c, 2, 1))
        return
    kernel, stride, padding = w.pick([2, 3]), w.pick([1, 1, 2]), w.pick([0, 1, 1])
    plain = tuple(_out(n, kernel, stride, padding, 1) for n in (h, wide))
    settings = f"{kernel}, {stride}, {padding}"
    forms = [
        (f"nn.MaxPool2d({settings})", plain),
        (f"nn.AvgPool2d({settings})", plain),
        (f"nn.AvgPool2d({settings}, count_include_pad=False)", plain),
        (f"F.max_pool2d({{v}}, {settings})", plain),
        (f"F.avg_pool2d({{v}}, {settings})", plain),
        ("nn.AdaptiveAvgPool2d((3, 2))", (3, 2)),
        ("nn.AdaptiveMaxPool2d(2)", (2, 2)),
        ("F.max_pool2d({v}, 2, return_indices=True)[0]", (h // 2, wide // 2)),
    ]
    form, size = w.pick(forms)
    text = f"{w.layer(form)}({v.name})" if form.startswith("nn.") else form.format(v=v.name)
    w.save(v)
    w.new(text, v.samples, (c, *size))


@operation(is_map)
def reduce(w, v):
    c, h, wide = v.shape
    forms = [
        ("{v}.mean((2, 3), keepdim=True)", v.samples, (c, 1, 1)),
        ("{v}.mean(1, keepdim=True)", v.samples, (1, h, wide)),
        ("{v}.amax((2, 3), True)", v.samples, (c, 1, 1)),
        ("torch.mean({v}, dim=0, keepdim=True)", 0, v.shape),
        ("F.adaptive_avg_pool2d({v}, 1)", v.samples, (c, 1, 1)),
    ]
    form, samples, shape = w.pick(forms)
    result = w.new(form.format(v=v.name), samples, shape)
    w.save(v, result)


@operation(is_map, weight=2)
def rearrange(w, v):
    """Samples, channels and places change their roles."""
    c, h, wide = v.shape
    n = v.samples
    forms: list[tuple[str, int, tuple[int, ...], bool]] = [
        ("{v}.transpose(2, 3)", n, (c, wide, h), True),
        ("{v}.permute(0, 1, 3, 2).contiguous()", n, (c, wide, h), True),
        (f"{{v}}.flatten(1).view(-1, {c}, {h}, {wide})", n, v.shape, True),
        (f"{{v}}.permute(0, 2, 3, 1).reshape(-1, {h * wide}, {c}).transpose(1, 2)"
         f".reshape(-1, {c}, {h}, {wide})", n, v.shape, True),
        ("{v}.flip(3)", n, v.shape, False),
    ]  # fmt: skip
    more = 0 < n <= _MOST_SAMPLES // 2
    if more and c % 2 == 0:
        forms.append((f"{{v}}.reshape(-1, {c // 2}, {h}, {wide})", 2 * n, (c // 2, h, wide), True))
        counted = f"{{v}}.reshape({{v}}.shape[0] * 2, {c // 2}, {h}, {wide})"
        forms.append((counted, 2 * n, (c // 2, h, wide), True))
    if more:
        forms.append(("torch.cat([{v}, {v}.flip(2)])", 2 * n, v.shape, False))
    if 0 < n <= _MOST_SAMPLES // 4 and h % 2 == 0 and wide % 2 == 0:
        patches = (
            f"{{v}}.reshape({{v}}.shape[0], {c}, {h // 2}, 2, {wide // 2}, 2)"
            f".permute(0, 3, 5, 1, 2, 4).reshape(-1, {c}, {h // 2}, {wide // 2})"
        )
        forms += [(patches, 4 * n, (c, h // 2, wide // 2), True)] * 2
    if n and n % 4 == 0:
        back = (
            f"{{v}}.reshape(-1, 2, 2, {c}, {h}, {wide}).permute(0, 3, 4, 1, 5, 2)"
            f".reshape(-1, {c}, {2 * h}, {2 * wide})"
        )
        if 2 * max(h, wide) <= _LARGEST_MAP:
            forms += [(back, n // 4, (c, 2 * h, 2 * wide), True)] * 2
        forms.append((f"{{v}}.reshape(-1, 4, {c}, {h}, {wide}).mean(1)", n // 4, v.shape, False))
    if n and n % 2 == 0:
        halves = "{v}[: {v}.shape[0] // 2] + {v}[{v}.shape[0] // 2 :]"
        forms.append((halves, n // 2, v.shape, False))
        if 2 * c <= _MOST_CHANNELS:
            joined = f"{{v}}.reshape({{v}}.shape[0] // 2, {2 * c}, {h}, {wide})"
            forms.append((joined, n // 2, (2 * c, h, wide), True))
    if n:
        forms.append(("{v}[:1]", 0, v.shape, True))
    form, samples, shape, is_view = w.pick(forms)
    w.new(form.format(v=v.name), samples, shape, like=v if is_view else None)


@operation(is_map)
def enlarge(w, v):
    c, h, wide = v.shape
    forms = [
        ("F.pad({v}, (1, 0, 0, 1))", (c, h + 1, wide + 1)),
        (f"F.interpolate({{v}}, size=({min(h + 2, 8)}, 6))", (c, min(h + 2, 8), 6)),
    ]
    if 2 * max(h, wide) <= _LARGEST_MAP:
        twice = (c, 2 * h, 2 * wide)
        forms.append(("F.interpolate({v}, scale_factor=2)", twice))
        forms.append(("F.interpolate({v}, scale_factor=2, mode='bilinear')", twice))
    form, shape = w.pick(forms)
    w.save(v)
    w.new(form.format(v=v.name), v.samples, shape)


@operation(always)
def do_nothing(w, v):
    """Dropout and Identity give back what they got: the same memory."""
    forms = ["nn.Identity()", "nn.Dropout(0.0)", "nn.Dropout(0.4)", "alias"]
    form = w.pick([*forms, "nn.Dropout2d(0.0)"] if v.is_map else forms)
    w.program.random |= "0.4" in form
    text = v.name if form == "alias" else f"{w.layer(form)}({v.name})"
    w.new(text, v.samples, v.shape, like=v)


@operation(is_map)
def flatten(w, v):
    c, h, wide = v.shape
    forms = [
        ("{v}.mean((2, 3))", (c,), False),
        ("{v}.flatten(1)", (c * h * wide,), True),
        (f"{{v}}.reshape(-1, {c * h * wide})", (c * h * wide,), True),
        ("{v}.flatten(2).amax(2)", (c,), False),
    ]
    form, shape, is_view = w.pick(forms)
    result = w.new(form.format(v=v.name), v.samples, shape, like=v if is_view else None)
    w.save(*(() if is_view else (v, result)))


@operation(lambda w, v: not v.is_map, weight=6)
def project(w, v):
    outputs = w.draw(st.integers(4, 10))
    name = w.layer(f"nn.Linear({v.shape[0]}, {outputs}, bias={w.flag()})")
    w.save(v)
    w.new(f"{name}({v.name})", v.samples, (outputs,))


# ---- whole programs


@st.composite
def programs(draw, most=14):
    """Programs of up to so many operations, and one or two outputs."""
    shape = (3, draw(st.integers(5, 10)), draw(st.integers(5, 10)))
    w = Writer(draw, shape)
    first = w.layer("nn.Conv2d(3, 8, 3, padding=1)")
    w.saved.add(0)
    w.new(f"{first}(x)", 1, (8, *shape[1:]))
    for _ in range(draw(st.integers(2, most))):
        value = w.value()
        fitting = [
            function
            for weight, applies, function in _OPERATIONS
            if applies(w, value)
            for _ in range(weight)
        ]
        w.pick(fitting)(w, value)
    # Whatever it was, it ends in a layer, so there is something to train.
    (convolve if w.values[-1].is_map else project)(w, w.values[-1])
    outputs = [w.values[-1].name]
    if draw(st.booleans()):
        outputs.append(w.value().name)
    w.program.lines.append(f"return {', '.join(outputs)}")
    return w.program
