"""The plain step: torch's own modules, autograd and update, the reference that every faster step is held to."""

import torch
from torch import nn

from dolb import models
from dolb.augment import DeviceImages, Place
from dolb.training import optim
from dolb.training.config import RunConfig


class EagerNetwork:
    """A network on a device, with its optimizer; every operation of a step is one of torch's, in its own order."""

    def __init__(self, network: nn.Module, config: RunConfig):
        self.network, self.config = network, config
        self.device = next(network.parameters()).device
        self.dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        self.rate = torch.zeros((), device=self.device)
        self.optimizer = optim.build(config, network.parameters(), self.rate)
        self.positions = torch.arange(config.batch_size, device=self.device)
        self.channels_last = any(one.ndim == 4 and not one.is_contiguous() for one in network.parameters())

    def step(self, size: int, images: DeviceImages, place: Place) -> None:
        """Make the next batch of ``size``, and train on it."""
        where = place.cursor + self.positions[:size]
        loss = self.loss(images, place.order[where], place.dy[where], place.dx[where], place.flip[where])
        self.optimizer.forget_gradients()
        loss.backward()
        self.rate.copy_(place.rates.index_select(0, place.updates).squeeze(0))
        self.optimizer.step()
        place.loss_sum.add_(loss.detach().double() * size)
        place.cursor.add_(size)
        place.updates.add_(1)

    def loss(
        self, images: DeviceImages, index: torch.Tensor, dy: torch.Tensor, dx: torch.Tensor, flip: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean loss over some examples, cropped and mirrored so."""
        batch = images.batch(index, dy, dx, flip, self.dtype)
        with self._arithmetic():
            scores = self.network(self._laid_out(batch))
        return models.objective(self.config.arch, scores, batch, images.labels[index], self.config.label_smoothing)

    @torch.no_grad()
    def evaluate(self, images: DeviceImages, start: int, stop: int) -> torch.Tensor:
        """Return the scores of images start..stop, as they are, by the running estimates."""
        self.network.eval()
        with self._arithmetic():
            scores = self.network(self._laid_out(images.centre(start, stop, self.dtype)))
        self.network.train()
        return scores

    def state(self) -> list[torch.Tensor]:
        """Return the tensors that training changes."""
        momenta = [momentum for state in self.optimizer.state.values() for momentum in state.values()]
        return [*self.network.state_dict().values(), *momenta]

    def forget_gradients(self) -> None:
        """Drop the gradients, so that a captured step makes them anew in its own memory."""
        self.optimizer.forget_gradients()

    def _laid_out(self, images: torch.Tensor) -> torch.Tensor:
        return images if self.channels_last else images.contiguous()

    def _arithmetic(self) -> torch.autocast:
        half = self.dtype == torch.bfloat16
        return torch.autocast(self.device.type, torch.bfloat16, enabled=half, cache_enabled=False)
