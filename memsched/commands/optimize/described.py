"""What the report says of rewrites: of those that led to a model, of those tried in vain, and of each search."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction

import msgspec

from memsched.commands.optimize.arms import Arm
from memsched.commands.optimize.by_turns import with_earlier
from memsched.commands.optimize.driver import Driver
from memsched.commands.optimize.final_model import FinalModel, compared
from memsched.commands.optimize.ledger import name_of
from memsched.commands.optimize.permissions import Permissions
from memsched.commands.optimize.placing import fewer, module_macs
from memsched.commands.optimize.rewrite import Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.report.values.rewrites import TilingSection
from memsched.report.values.verdict import LedgerRow

__all__ = ["described", "tried_rows"]


def described(driver: Driver, final: FinalModel, permitted: Permissions) -> FinalModel:
    """Return the model that a driver chose, and those that it was made from, with the report's sections."""
    chain = list(_made_from(final))
    told = chain[0]
    for model in chain[1:]:
        told = _after(told, model, driver)
    sections = told.rewrites
    for arm, ways in _in_vain(driver, chain):
        sections = _in_vain_section(sections, arm, ways)
    tiling = _with_all_refusals(sections.tiling, driver, chain)
    if tiling is not None:
        percent = float(permitted.extra_percent)
        tiling = msgspec.structs.replace(tiling, max_extra_macs_percent=percent, short=permitted.free)

    def cheaper(most: Fraction) -> FinalModel | None:
        found = driver.best_within(driver.start_of(final), most)
        return None if found.extra_work >= final.extra_work else described(driver, found, permitted)

    return dataclasses.replace(told, rewrites=dataclasses.replace(sections, tiling=tiling), cheaper=cheaper)


def _made_from(final: FinalModel) -> Iterator[FinalModel]:
    """Yield the model as given, and each that was made of the one before."""
    if final.before is not None:
        yield from _made_from(final.before)
    yield final


def _after(before: FinalModel, model: FinalModel, driver: Driver) -> FinalModel:
    """Return a model with what is reported of the rewrites that led to it, compared with the model as given."""
    arm, given = driver.makers_of(model)[-1], driver.start_of(model)

    def with_fewer() -> Iterator[FinalModel]:
        for one in fewer(model, arm.start, driver.request.as_optional(needed=True)):
            yield dataclasses.replace(one, before=before, rewrites=_sections(before, one, given))

    return dataclasses.replace(
        model,
        before=before,
        rewrites=_sections(before, model, given),
        placed=compared(model.placed, given.placed),
        whole=given.placed,
        fewer=with_fewer,
    )


def _sections(before: FinalModel, model: FinalModel, given: FinalModel) -> Rewrites:
    """Return what is reported of ``before`` and of the rewrite that made ``model`` of it."""
    made = model.made
    if made is None:
        return before.rewrites
    after = made.ways.describe(before.rewrites, made, model.extra_macs - before.extra_macs)
    after = with_earlier(before.rewrites, after, before.module.graphs[0], module_macs(given.module))
    return _with_bytes(before.rewrites, after, before.placed.required, model.placed.required)


def _with_bytes(before: Rewrites, after: Rewrites, given: int, made: int) -> Rewrites:
    """Return sections with what was required before and after what they are about."""
    for name in ("io", "chains", "algebra"):
        section = getattr(after, name)
        if section is not None and section is not getattr(before, name):
            section = msgspec.structs.replace(section, given_bytes=given, bytes=made)
            after = dataclasses.replace(after, **{name: section})
    return after


def _in_vain(driver: Driver, chain: list[FinalModel]) -> Iterator[tuple[Arm, Ways]]:
    """Yield an arm of each kind of rewrite that did not lead to the model: of the last base that it was tried on."""
    told = set(chain[-1].names)
    for rewrite in driver.rewrites:
        arms = [arm for model in reversed(chain) for arm in driver.arms_of(model) if arm.rewrite == rewrite]
        tried = [arm for arm in arms if arm.proposals is not None] or arms[-1:]
        ways = tried[0].begun(driver.request.run) if tried and rewrite.name not in told else None
        if ways is not None:
            told.add(rewrite.name)
            yield tried[0], ways


def _in_vain_section(sections: Rewrites, arm: Arm, ways: Ways) -> Rewrites:
    found = ways.describe(sections, None, 0)
    required = arm.base.placed.required
    return _with_bytes(sections, found, required, required)


def _with_all_refusals(section: TilingSection | None, driver: Driver, chain: list[FinalModel]) -> TilingSection | None:
    """Return the section with what ends groups of each form, which is worth knowing where another one is used, too."""
    if section is None:
        return None
    rows = list(section.refusals)
    for model in chain:
        for arm in driver.arms_of(model):
            others = [ways.describe(Rewrites(), None, 0).tiling for ways in arm.ways if arm.rewrite.name == "tile"]
            for other in others:
                rows += [] if other is None else [row for row in other.refusals if row not in rows]
    return msgspec.structs.replace(section, refusals=tuple(rows))


def tried_rows(driver: Driver, final: FinalModel) -> Iterator[LedgerRow]:
    """Yield what each search did that had a slice of work, with what became of it in the model that was chosen."""
    total = sum(arm.work for arm in driver.arms)
    used = driver.makers_of(final)
    macs = module_macs(driver.start_of(final).module)
    for arm in driver.arms:
        if arm.proposals is None:
            continue
        base, least = arm.base, arm.least
        yield LedgerRow(
            pass_=arm.rewrite.name,
            on=name_of(base.names),
            tried=len(arm.found),
            found_bytes=None if least is None else least.placed.required,
            applied=arm in used,
            reason="" if arm in used else _why_not(arm),
            work_percent=round(100 * arm.work / total, 2) if total else 0.0,
            seconds=round(arm.seconds, 4),
            proof="",
            before_bytes=base.placed.required,
            ops_before=len(base.module.graphs[0].ops),
            ops_after=None if least is None else len(least.module.graphs[0].ops),
            extra_macs_percent=None if least is None or not macs else round(100 * least.extra_macs / macs, 3),
        )


def _why_not(arm: Arm) -> str:
    """Return why the model that was chosen has nothing of what a search proposed."""
    if arm.least is not None:
        less = arm.least.weight < arm.base.weight
        return "another candidate is better" if less else "it requires no less than the model it began with"
    if arm.unwritable:
        return f"it cannot be written: {arm.unwritable}"
    if arm.found:
        return "no proposal promised enough"
    return "there is nothing for it to change" if arm.ended else "the search ended before it proposed anything"
