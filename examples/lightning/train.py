"""A small classifier with Lightning: is a point inside the circle?"""

import argparse

import lightning
import torch

from themis.integrations.lightning import ThemisCallback, last_checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--steps", type=int, default=300, help="of the whole training")
options = parser.parse_args()


class Circle(lightning.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        )

    def training_step(self, batch, index):
        points, inside = batch
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.net(points), inside)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


lightning.seed_everything(0)
points = torch.rand(1024, 2) * 2 - 1
inside = (points.norm(dim=1, keepdim=True) < 0.8).float()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(points, inside), batch_size=32)

trainer = lightning.Trainer(
    max_steps=options.steps,
    callbacks=[ThemisCallback(every_n_steps=1)],
    logger=False,
    enable_checkpointing=False,  # the callback saves
    enable_progress_bar=False,
)
trainer.fit(Circle(options.lr), loader, ckpt_path=last_checkpoint())
print(f"at step {trainer.global_step}")
