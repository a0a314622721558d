"""A strict parser of Prometheus' text format 0.0.4 and of OpenMetrics 1.0.0. It refuses what a lenient reader would forgive."""

import re
from typing import NamedTuple

NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"
LABEL = re.compile(rf'({NAME})="((?:[^"\\\n]|\\["\\n])*)"')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (-?[0-9]+(?:\.[0-9]+)?)")
ENDINGS = {"counter": "_total", "info": "_info"}


class Family(NamedTuple):
    kind: str
    help: str
    unit: str
    samples: dict
    """By their labels, as sorted pairs."""


def _labels(text):
    labels, at = {}, 0
    while at < len(text):
        found = LABEL.match(text, at)
        assert found, text[at:]
        assert found[1] not in labels, text
        labels[found[1]] = re.sub(r"\\(.)", lambda escaped: "\n" if escaped[1] == "n" else escaped[1], found[2])
        at = found.end()
        if at < len(text):
            assert text[at] == "," and at + 1 < len(text), text
            at += 1
    return tuple(sorted(labels.items()))


def parse(text, is_openmetrics=False):
    """The families of an answer, by the names of their samples."""
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    if is_openmetrics:
        assert lines.pop() == "# EOF"
    families, metric, about = {}, None, {}
    for line in lines:
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            if word == "HELP":
                metric, about = name, {}
                assert metric not in {family for family, _ in families}, f"{metric} comes twice"
            assert word in ("HELP", "TYPE", "UNIT") and name == metric and word not in about, line
            about[word] = rest
            continue
        found = SAMPLE.fullmatch(line)
        assert found, line
        kind = about["TYPE"]
        name = metric
        if is_openmetrics:
            name += ENDINGS.get(kind, "")
            assert not about.get("UNIT") or metric.endswith("_" + about["UNIT"]), line
        else:
            assert kind in ("gauge", "counter") and "UNIT" not in about, line
        assert found[1] == name, line
        family = families.setdefault((metric, name), Family(kind, about["HELP"], about.get("UNIT", ""), {}))
        labels = _labels(found[2] or "")
        assert labels not in family.samples, f"{line} comes twice"
        family.samples[labels] = float(found[3]) if "." in found[3] else int(found[3])
    return {name: family for (_, name), family in families.items()}


class Figures:
    """The series of an answer."""

    def __init__(self, text, is_openmetrics=False):
        self.text = text
        self.families = parse(text, is_openmetrics)

    def all(self, name, **labels):
        """The series of a metric that have these labels, as pairs of labels and value."""
        family = self.families.get(name)
        samples = family.samples.items() if family else ()
        return [(dict(found), value) for found, value in samples if labels.items() <= dict(found).items()]

    def one(self, name, **labels):
        """The value of the only series that has these labels."""
        ((_, value),) = self.all(name, **labels)
        return value
