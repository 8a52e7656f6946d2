"""The pointer network of RESPECT (section III-B, algorithm 1) in PyTorch, for training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from memsched.features.pipeline.respect_embedding import WIDTH

__all__ = ["Decoded", "Policy"]

CELLS = 256


@dataclass(frozen=True, slots=True)
class Decoded:
    """Orders and how likely the policy thought them.

    Attributes:
        orders: [graph, step].
        likelihood: [graph]: the logarithm of equation 4.
    """

    orders: Tensor
    likelihood: Tensor


class Policy(nn.Module):  # type: ignore[misc]
    """LSTM encoder and decoder, glimpse and pointer.

    The glimpse is a softmax-weighted sum of C * theta_g by its products with omega_g * h + beta_g, the pointer the
    additive attention of algorithm 1. Both look only at nodes that may come next.
    """

    def __init__(self, cells: int = CELLS) -> None:
        super().__init__()
        self.encoder = nn.LSTM(WIDTH, cells, batch_first=True)
        self.cell = nn.LSTMCell(WIDTH, cells)
        self.first = nn.Parameter(torch.zeros(WIDTH))
        self.glimpse_reference = nn.Linear(cells, cells, bias=False)
        self.glimpse_query = nn.Linear(cells, cells)
        self.pointer_reference = nn.Linear(cells, cells, bias=False)
        self.pointer_query = nn.Linear(cells, cells)
        self.pointer = nn.Linear(cells, 1, bias=False)
        self.scale = cells**-0.5

    def encode(self, embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the references of glimpse and pointer, [graph, node, cell], and the decoder's first state."""
        contexts, (hidden, memory) = self.encoder(embeddings)
        return self.glimpse_reference(contexts), self.pointer_reference(contexts), hidden[0], memory[0]

    def point(self, glimpses: Tensor, pointers: Tensor, hidden: Tensor, blocked: Tensor | None = None) -> Tensor:
        """Return the logit of each candidate, [graph, candidate]; minus infinity where ``blocked``."""
        weights = torch.einsum("bkd,bd->bk", glimpses, self.glimpse_query(hidden)) * self.scale
        if blocked is not None:
            weights = weights.masked_fill(blocked, -torch.inf)
        glimpse = torch.einsum("bk,bkd->bd", torch.softmax(weights, 1), glimpses)
        logits: Tensor = self.pointer(torch.tanh(pointers + self.pointer_query(glimpse)[:, None])).squeeze(2)
        return logits if blocked is None else logits.masked_fill(blocked, -torch.inf)

    def decode(
        self, embeddings: Tensor, children: Tensor, *, sample: bool = False, forced: Tensor | None = None
    ) -> Decoded:
        """Return an order per graph: the likeliest node at each step, a sampled one, or the ``forced`` one.

        Args:
            embeddings: [graph, node, column].
            children: [graph, node, node]: 1 where the second node reads the first; a node whose parents are not all
                out is no candidate. Zeros leave only the mask of visited nodes.
            forced: [graph, step].
        """
        graphs, nodes, _ = embeddings.shape
        glimpses, pointers, hidden, memory = self.encode(embeddings)
        references = torch.cat((glimpses, pointers), 2)
        waiting = children.sum(1)
        inputs = self.first.expand(graphs, -1)
        rows = torch.arange(graphs, device=embeddings.device)
        orders, likelihood = [], torch.zeros(graphs, device=embeddings.device)
        for step in range(nodes):
            hidden, memory = self.cell(inputs, (hidden, memory))
            ready = waiting == 0
            most = int(ready.sum(1).max())
            flags, candidates = torch.topk(ready.to(torch.float32), most, dim=1)
            wide = candidates[:, :, None].expand(-1, -1, references.shape[2])
            near, far = references.gather(1, wide).chunk(2, 2)
            logits = self.point(near, far, hidden, flags == 0)
            if forced is not None:
                place = (candidates == forced[:, step, None]).to(torch.float32).argmax(1)
            elif sample:
                place = torch.multinomial(torch.softmax(logits.detach(), 1), 1).squeeze(1)
            else:
                place = logits.argmax(1)
            likelihood = likelihood + torch.log_softmax(logits, 1)[rows, place]
            chosen = candidates[rows, place]
            orders.append(chosen)
            waiting = waiting - children[rows, chosen]
            waiting[rows, chosen] = -1
            inputs = embeddings[rows, chosen]
        return Decoded(torch.stack(orders, 1), likelihood)
