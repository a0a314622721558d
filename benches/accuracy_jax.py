"""Writes the page about plans for JAX from the rows that `tests/gpu/jax_plan.py` measured on a GPU.

python benches/accuracy_jax.py ROWS [--write docs/proof/accuracy-jax.md]
"""

import argparse
import json
from pathlib import Path

MIB = 1 << 20


def cell(row):
    """The cells of a figure: predicted, its range, measured, and how far apart."""
    predicted, measured = row["predicted"], row["measured"]
    if predicted is None or measured is None:
        return "unknown", "", "unknown" if measured is None else f"{measured / MIB:,.1f}", ""
    between = "" if row["low"] is None else f"{row['low'] / MIB:,.1f} to {row['high'] / MIB:,.1f}"
    return f"{predicted / MIB:,.1f}", between, f"{measured / MIB:,.1f}", f"{predicted / measured - 1:+.2%}"


def page(rows):
    figures = [row for row in rows if row["figure"] in ("peak", "pool", "process")]
    largest = [row for row in rows if row["figure"] == "largest batch"]
    told = max((row for row in rows if row["figure"] == "largest pool told"), key=lambda row: row["predicted"] / row["measured"])
    lines = [
        "# Accuracy of plans for JAX",
        "",
        "`benches/accuracy_jax.py` writes this page from what `tests/gpu/jax_plan.py` measured; that script describes the method.",
        "",
        f"JAX {rows[0]['jax']} on one NVIDIA H200. MiB; the pool is what JAX takes from the driver, the process what NVML counts.",
        "",
        "| model | pool | batch | figure | predicted | range | measured | off |",
        "|---|---|---|---|---|---|---|---|",
        *(f"| {row['model']} | {row['mode']} | {row['batch']} | {row['figure']} | {' | '.join(cell(row))} |" for row in figures),
        "",
        f"The largest pool that any plan or fix named was {told['predicted'] / MIB:,.0f} MiB, where {told['measured'] / MIB:,.0f} MiB was the limit.",
        "",
        "Under a limit, with real runs that confirm the answer:",
        "",
        *(f"- {row['model']}, {row['mode']}: {row['said']['text']} {row['confirmation']['text']}" for row in largest),
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=Path)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    text = page([json.loads(line) for line in asked.rows.read_text(encoding="utf-8").splitlines()])
    print(text)
    if asked.write:
        asked.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
