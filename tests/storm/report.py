"""The table of a storm, in plain text."""

from __future__ import annotations

from collections import Counter


def table(storm, verdict):
    """Hazards and how turns ended under them, then what was promised and how often it was broken."""
    families = {}
    for label, ends in verdict.ends.items():
        families.setdefault(label.partition(":")[0], Counter()).update(ends)
    lines = [f"seed {storm.seed}: {len(storm.asked)} turns in {storm.seconds:.1f} s, match {storm.level}", ""]
    lines.append(f"{'what happened to the turn':<32}{'turns':>6}  what its client saw")
    for family, ends in sorted(families.items(), key=lambda pair: (pair[0] != "calm", pair[0])):
        seen = ", ".join(f"{count} {end}" for end, count in sorted(ends.items(), key=lambda pair: -pair[1]))
        lines.append(f"{family:<32}{sum(ends.values()):>6}  {seen}")
    outages = Counter(outage.kind for outage in storm.outages)
    lines.append("outages: " + ", ".join(f"{count} {kind}" for kind, count in outages.items()))
    turns, sockets = storm.stats["turns"], storm.stats["connections"]
    lines.append(f"modes: {turns['delta']} delta, {turns['full']} full, {turns['http']} http")
    for title, counts in (
        ("reasons", storm.stats["reasons"]),
        ("recoveries", storm.stats["recoveries"]),
        ("closed", sockets["closed"]),
    ):
        lines.append(f"{title}: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count))
    lines.append(f"sockets: {sockets['opened']} opened, {sockets['reused']} reused")
    lines.append(f"tries: {_counts(verdict.tries)}; begun upstream: {_counts(verdict.begun)}")
    lines.append("")
    for kind, breaches in verdict.breaches.items():
        lines.append(f"{kind:<40}{len(breaches):>4}")
        lines += [f"    {text}" for text in breaches[:20]]
    lines.append("all promises kept" if verdict.clean else "PROMISES BROKEN")
    return "\n".join(lines)


def _counts(counter):
    return ", ".join(f"{count} x {number}" for number, count in sorted(counter.items()))
