"""A second implementation of reward runs in whole numbers and fractions, written from the rules and not from the code.

Reads one epoch a line (JSON) and writes its allocations a line. An epoch has `policy`, `carry` (units by asset), `rows`
(`[actor, metric, group, asset, quantity]`) and `ties` (hex hash by actor). It is slow and plain on purpose.
"""

import json
import sys
from fractions import Fraction
from math import floor, gcd, lcm


def whole_weights(weights):
    """Weights as whole numbers without a common factor."""
    ratios = {metric: Fraction(text) for metric, text in weights.items()}
    multiple = lcm(*(ratio.denominator for ratio in ratios.values()))
    scaled = {metric: int(ratio * multiple) for metric, ratio in ratios.items()}
    common = gcd(*scaled.values())
    return {metric: weight // common for metric, weight in scaled.items()}


def spread(carried, pools):
    """Carried units over groups, in proportion to their pools, fractions by largest remainder and name."""
    names = sorted(pools, key=str.encode)
    total = sum(pools.values())
    shares = {name: Fraction(carried * pools[name], total) if total else Fraction(carried, len(names)) for name in names}
    amounts = {name: floor(shares[name]) for name in names}
    names.sort(key=lambda name: amounts[name] - shares[name])
    for name in names[: carried - sum(amounts.values())]:
        amounts[name] += 1
    return amounts


def fill(pool, scores, cap):
    """Exact shares under a cap: whoever is above it gets it, and the others share the rest, until nobody is."""
    capped = set()
    while True:
        rest = {actor: score for actor, score in scores.items() if actor not in capped}
        total = sum(rest.values())
        left = pool - (cap or 0) * len(capped)
        shares = {actor: Fraction(left * score, total) for actor, score in rest.items()}
        over = {actor for actor, share in shares.items() if cap is not None and share > cap}
        if not over:
            return {**shares, **{actor: Fraction(cap) for actor in capped}}
        capped |= over


def paid_ones(pool, scores, cap, minimum):
    """Drops the lowest scores, equals together, until the lowest that is left reaches the minimum."""
    scores = dict(scores)
    while scores:
        shares = fill(pool, scores, cap)
        lowest = min(scores.values())
        if all(shares[actor] >= minimum for actor in scores):
            return scores, shares
        scores = {actor: score for actor, score in scores.items() if score > lowest}
    return {}, {}


def webster(pool, scores, shares, low, high, order):
    """Unit by unit: the next goes to the largest score / (2 * units + 1)."""
    amounts = {actor: min(max(floor(share + Fraction(1, 2)), low), high) for actor, share in shares.items()}
    while sum(amounts.values()) > pool:
        takers = [actor for actor in amounts if amounts[actor] > low]
        loser = max(takers, key=lambda actor: (-Fraction(scores[actor], 2 * amounts[actor] - 1), order[actor]))
        amounts[loser] -= 1
    while sum(amounts.values()) < pool:
        takers = [actor for actor in amounts if amounts[actor] < high]
        if not takers:
            break
        winner = min(takers, key=lambda actor: (-Fraction(scores[actor], 2 * amounts[actor] + 1), order[actor]))
        amounts[winner] += 1
    return amounts


def divide(pool, scores, asset, order):
    """Amounts of one pool."""
    cap = int(asset["cap"]) if "cap" in asset else None
    minimum = int(asset.get("minimum", 0))
    scores = {actor: score for actor, score in scores.items() if score > 0}
    scores, shares = paid_ones(pool, scores, cap, minimum)
    rule = asset.get("rounding", "largest_remainder")
    if rule == "webster":
        return webster(pool, scores, shares, minimum, pool if cap is None else cap, order)
    amounts = {actor: floor(share) for actor, share in shares.items()}
    if rule == "largest_remainder":
        left = floor(sum(shares.values())) - sum(amounts.values())
        ranked = sorted(shares, key=lambda actor: (amounts[actor] - shares[actor], order[actor]))
        for actor in ranked[:left]:
            amounts[actor] += 1
    return amounts


def epoch(case):
    """Allocations of every asset."""
    actors = sorted({row[0] for row in case["rows"]}, key=str.encode)
    result = []
    for asset in case["policy"]["assets"]:
        name, weights = asset["asset"], whole_weights(asset["weights"])
        by_hash = asset.get("ties", "hash") == "hash"
        order = {actor: (case["ties"][actor] if by_hash else "", actor.encode()) for actor in actors}
        carried = int(case["carry"].get(name, 0))
        groups = {group: int(units) for group, units in asset.get("groups", {}).items()}
        extra = spread(carried, groups) if groups else {}
        pools = {group: units + extra[group] for group, units in groups.items()} or {None: int(asset["pool"]) + carried}
        scores = {group: dict.fromkeys(actors, 0) for group in pools}
        for actor, metric, group, only, quantity in case["rows"]:
            if only in (None, name) and weights.get(metric, 0) > 0:
                scores[group if groups else None][actor] += weights[metric] * int(quantity)
        amounts = dict.fromkeys(actors, 0)
        for group, units in pools.items():
            for actor, amount in divide(units, scores[group], asset, order).items():
                amounts[actor] += amount
        paid, pool = sum(amounts.values()), sum(pools.values())
        amounts = {actor: str(amount) for actor, amount in amounts.items()}
        result.append({"asset": name, "pool": str(pool), "paid": str(paid), "amounts": amounts})
    return result


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        print(json.dumps(epoch(json.loads(line))), flush=True)
