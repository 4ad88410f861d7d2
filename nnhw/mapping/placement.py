"""Placement of the parts of chosen engines in logic, block RAM, large RAM or DSP blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.matrix_product import factor_type
from nnhw.engines.pairwise import can_use_dsp
from nnhw.errors import MappingError
from nnhw.families import Cost
from nnhw.mapping.budget import Budget
from nnhw.mapping.design_space import DesignSpace
from nnhw.mapping.folding import Folding
from nnhw.mapping.layers import ChannelLayer, Layer, MatrixLayer, MatrixProductLayer, PairLayer, RowLayer

_Move = tuple[float, Folding, Cost]
"""A change of a layer's folding: logic cells that it takes per block RAM that it saves, the new folding, its cost."""


class PartMover:
    """Moves parts of engines between kinds of resources, so that a budget suffices; each method is greedy.

    Parameters
    ----------
    space: design space of the network.
    budget: the resources that the engines may take.
    """

    def __init__(self, space: DesignSpace, budget: Budget) -> None:
        self.space = space
        self.budget = budget

    def buffers(self, chosen: Sequence[Folding], interval: int) -> list[Folding]:
        """Move line buffers to large RAM until the block RAMs suffice; those with most block RAMs per large RAM first.

        Parameters
        ----------
        chosen: folding of each layer.
        interval: cycles per frame that no layer may exceed; line buffers in large RAM are slower, as it has one port.

        Returns: the foldings with their `large`.
        """
        placed, moves = list(chosen), []
        pairs = list(zip(self.space.layers, placed, strict=True))
        over = sum(self.space.candidate(layer, folding).cost.ebr for layer, folding in pairs) - self.budget.ebr
        if over <= 0 or not self.budget.spram:
            return placed
        for index, (layer, folding) in enumerate(pairs):
            try:
                after = self.space.candidate(layer, replace(folding, large=True))
            except MappingError:
                continue
            saved = self.space.candidate(layer, folding).cost.ebr - after.cost.ebr
            if saved > 0 and after.cycles <= interval:
                # What is saved for each large RAM, of which wide words take several.
                moves.append((-saved / after.cost.spram, index, saved, after))
        left = self.budget.spram
        for _, index, saved, after in sorted(moves, key=lambda move: move[:2]):
            if over > 0 and after.cost.spram <= left:
                placed[index] = after.folding
                over, left = over - saved, left - after.cost.spram
        return placed

    def weights(self, chosen: Sequence[Folding]) -> tuple[list[Folding], Cost]:
        """Move weights and scalings from block RAM to logic until the block RAMs suffice, the cheapest move first.

        Returns
        -------
        The foldings with their `logic_pe`, `lut_buffer` and `lean_scaler`, and their cost, which may exceed the budget.
        """
        placed = list(chosen)
        costs = self.space.costs(placed)
        known: dict[int, list[_Move]] = {}
        while sum(item.ebr for item in costs) > self.budget.ebr:
            for index, (layer, folding) in enumerate(zip(self.space.layers, placed, strict=True)):
                if index not in known:
                    known[index] = self._ways_into_logic(layer, folding, costs[index])
            moves = [(move[0], index, move) for index, found in known.items() for move in found]
            if not moves:
                break
            _, index, (_, moved, after) = min(moves, key=lambda move: move[:2])
            placed[index], costs[index] = moved, after
            # Only the layer that has changed needs new moves; those of the others stay valid.
            del known[index]
        return placed, sum(costs, Cost())

    def products(self, chosen: Sequence[Folding], taken: Cost) -> tuple[list[Folding], Cost]:
        """Move products and scalings from logic to the DSP blocks that there are, where a block saves most logic.

        Parameters
        ----------
        taken: cost of the given foldings.

        Returns
        -------
        The foldings with their `dsp_pe` and `dsp_scaler`, and their cost.
        """
        placed, left = list(chosen), self.budget.dsp
        moves = []
        for index, (layer, folding) in enumerate(zip(self.space.layers, placed, strict=True)):
            before = self.space.candidate(layer, folding).cost
            for kind, moved in self._into_dsp(layer, folding):
                after = self.space.candidate(layer, moved).cost
                blocks, saved = after.dsp - before.dsp, before.lc - after.lc
                if blocks > 0 and saved > 0:
                    moves.append((-saved / blocks, index, kind, blocks))
        for _, index, kind, blocks in sorted(moves):
            if kind == "dsp_scaler" and blocks <= left:
                placed[index] = replace(placed[index], dsp_scaler=True)
                left -= blocks
            # `blocks` is what one cell takes: as many cells as the blocks that are left allow.
            elif kind == "dsp_pe":
                cells = min(placed[index].pe, left // blocks)
                placed[index] = replace(placed[index], dsp_pe=cells)
                left -= cells * blocks
        # Nothing was moved, so the cost that is known still holds.
        if left == self.budget.dsp:
            return placed, taken
        return placed, sum(self.space.costs(placed), Cost())

    def thresholds(self, chosen: Sequence[Folding], taken: Cost) -> list[Folding]:
        """Move thresholds from logic to block RAMs that are left, if a block RAM saves as much logic as it is worth."""
        placed, left = list(chosen), self.budget.ebr - taken.ebr
        while True:
            moves = []
            for index, (layer, folding) in enumerate(zip(self.space.layers, placed, strict=True)):
                if layer.function is None or not folding.logic_thresholds:
                    continue
                moved = replace(folding, logic_thresholds=False)
                before, after = self.space.candidate(layer, folding).cost, self.space.candidate(layer, moved).cost
                more = after.ebr - before.ebr
                if 0 < more <= left and before.lc - after.lc >= self.space.family.block_ram_lc * more:
                    moves.append(((after.lc - before.lc) / more, index, moved, more))
            if not moves:
                return placed
            _, index, moved, more = min(moves, key=lambda move: move[:2])
            placed[index], left = moved, left - more

    def _into_dsp(self, layer: Layer, folding: Folding) -> Iterable[tuple[str, Folding]]:
        """Yield the name of the changed field and the folding for each part that could be moved to DSP blocks."""
        if isinstance(layer, MatrixLayer | ChannelLayer) and layer.weight is not None:
            if LaneArithmetic(layer.activation, layer.weight).can_use_dsp:
                yield "dsp_pe", replace(folding, dsp_pe=1)
        if isinstance(layer, PairLayer) and layer.op == "product" and can_use_dsp(*layer.kinds):
            yield "dsp_pe", replace(folding, dsp_pe=1)
        if isinstance(layer, MatrixProductLayer) and LaneArithmetic(*map(factor_type, layer.kinds)).can_use_dsp:
            yield "dsp_pe", replace(folding, dsp_pe=1)
        if isinstance(layer, RowLayer):
            yield "dsp_pe", replace(folding, dsp_pe=1)
        if layer.function is not None:
            yield "dsp_scaler", replace(folding, dsp_scaler=True)

    def _into_logic(self, layer: Layer, folding: Folding) -> Iterable[list[Folding]]:
        """Yield the ways to take fewer block RAMs, each as a list of foldings with growing effect."""
        if isinstance(layer, MatrixLayer):
            counts = range(folding.logic_pe + 1, self._most_logic_pe(layer, folding) + 1)
            yield [replace(folding, logic_pe=count) for count in counts]
        elif layer.products and not folding.logic_pe:
            # Engines without an array have their weights in one place: any number above 0 means logic.
            yield [replace(folding, logic_pe=1)]
        if self.space.family.lut_ram.words and not folding.lut_buffer and not folding.large:
            yield [replace(folding, lut_buffer=True)]
        if layer.function is not None and not folding.lean_scaler:
            yield [replace(folding, lean_scaler=True)]

    def _most_logic_pe(self, layer: MatrixLayer, folding: Folding) -> int:
        """Return the number of cells of an array whose weights may be constants in logic."""
        words = layer.weights.size // (folding.pe * folding.simd)
        # Deep ROMs in LUTs that are large as well cannot be routed, see `Logic.deep_rom`.
        deep = self.space.family.logic.deep_rom
        if deep is None or words <= deep[0]:
            return folding.pe
        return min(folding.pe, deep[1] // (words * folding.simd * layer.weight.bits))

    def _ways_into_logic(self, layer: Layer, folding: Folding, before: Cost) -> list[_Move]:
        """Return, for each way of a layer to take fewer block RAMs, its first folding that saves any."""
        ways = self._into_logic(layer, folding)
        return [move for way in ways for move in self._first_saving(layer, way, before)]

    def _first_saving(self, layer: Layer, way: Iterable[Folding], before: Cost) -> list[_Move]:
        """Return the move to the first folding of a way that saves block RAMs; empty if there is none."""
        # One more cell in logic often saves nothing, as block RAMs come in whole numbers: go on to the first that does.
        for moved in way:
            try:
                after = self.space.candidate(layer, moved).cost
            except MappingError:
                # There is no line buffer of that kind.
                continue
            saved = before.ebr - after.ebr
            if saved > 0:
                return [((after.lc - before.lc) / saved, moved, after)]
        return []
