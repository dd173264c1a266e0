"""What tests look for in a drawn panel."""

import re
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
TAGS = {"svg", "g", "path", "text", "use", "defs", "clipPath", "rect"}


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def assert_sound(panels):
    """Valid, described, in the page's colours, and with names of their own."""
    for panel in panels:
        root = ElementTree.fromstring(panel)
        assert (root.tag, root.get("role"), root.get("width")) == (f"{SVG}svg", "img", None)
        assert root.get("aria-label")
        # No style sheet and no metadata.
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= TAGS
        without_fallbacks = re.sub(r"var\(--\w+, #[0-9a-f]{6}\)", "", panel)
        assert re.findall("#[0-9a-f]{6}(?![0-9a-f])", without_fallbacks) == []
        assert all("fill" in style for style in re.findall('<text style="([^"]*)"', panel))
    page = "".join(panels)
    names = re.findall(' id="([^"]*)"', page)
    assert len(set(names)) == len(names)
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', page)) <= set(names)
