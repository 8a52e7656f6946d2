"""What rewrites have to say of a model, section by section."""

from __future__ import annotations

from memsched.base.frozen import FrozenValue
from memsched.base.units import counted
from memsched.report.values.border import BorderSection
from memsched.report.values.rewrites import AlgebraSection, ChainSection, RematSection, TilingSection

__all__ = ["Rewrites"]


class Rewrites(FrozenValue, frozen=True):
    """What was done beside ordering, or tried: the report's sections of these names."""

    tiling: TilingSection | None = None
    remat: RematSection | None = None
    io: BorderSection | None = None
    chains: ChainSection | None = None
    algebra: AlgebraSection | None = None

    @property
    def inexact(self) -> bool:
        """Whether layers compute in another way, so that outputs may differ in their last bits."""
        sections = (self.chains, self.algebra, self.tiling, self.remat)
        return any(section is not None and section.applied for section in sections)

    @property
    def kernels(self) -> bool:
        """Whether layers are left to other kernels."""
        rows = () if self.algebra is None else self.algebra.identities
        return any(row.kind == "kernel" for row in rows)

    def applies(self, name: str) -> bool:
        """Whether the model has what a rewrite, by the name that permits it, says of itself."""
        named = {"tile": self.tiling, "remat": self.remat, "io": self.io, "fuse": self.chains, "algebra": self.algebra}
        section = named.get(name)
        return section is not None and section.applied

    def described(self) -> str:
        """Return in words what was done, such as "2 groups of layers in pieces"; empty where nothing was."""
        done = []
        if self.chains is not None and self.chains.applied:
            done.append("chains of operators in one each (fuse)")
        if self.algebra is not None and self.algebra.applied:
            name = "algebra" if self.algebra.exact else "reassociate"
            done.append(f"{counted(len(self.algebra.identities), 'operator')} computed otherwise ({name})")
        if self.io is not None and self.io.applied:
            done.append("inputs and outputs in another form (io)")
        if self.tiling is not None and self.tiling.applied:
            count = len(self.tiling.groups)
            done.append(f"{count} group{'s' if count > 1 else ''} of layers in pieces (tile)")
        if self.remat is not None and self.remat.applied:
            count = len(self.remat.copies)
            done.append(f"{count} operator{'s' if count > 1 else ''} computed again (remat)")
        return " and ".join(done)
