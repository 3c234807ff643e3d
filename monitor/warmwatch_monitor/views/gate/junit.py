"""JUnit's XML, which CI servers show as tests: one for each number that was compared."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from warmwatch_monitor.export.words import growth
from warmwatch_monitor.gate.growth import Held
from warmwatch_monitor.views.gate.result import Result

_SUITE = "warmwatch check"


def junit(result: Result) -> str:
    """What could not be compared is an error, what grew a failure with its reasons."""
    suite = Xml.Element("testsuite", name=_SUITE)
    for held in result.held:
        case = _case(suite, growth.whose(held), growth.title(held.measure))
        if held.grew:
            Xml.SubElement(case, "failure", message=growth.headline(held)).text = _why(held)
    for words in result.problems:
        Xml.SubElement(_case(suite, _SUITE, "compared"), "error", message=words)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(result.grew)))
    suite.set("errors", str(len(result.problems)))
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: Xml.Element, of: str, name: str) -> Xml.Element:
    return Xml.SubElement(suite, "testcase", classname=of, name=name)


def _why(held: Held) -> str:
    lines = (f"{words}\n  {remedy}" if remedy else words for words, remedy in growth.causes(held))
    return "\n".join(lines)
