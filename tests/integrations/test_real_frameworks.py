"""The callbacks in the frameworks themselves, where these are installed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import themis

COMMON = """
import os, signal, torch, themis

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        x = torch.randn(4, generator=torch.Generator().manual_seed(index))
        return {"x": x, "labels": x.sum(0, keepdim=True)}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x=None, labels=None):
        made = self.layer(x)
        return {"loss": ((made - labels) ** 2).mean(), "logits": made}

def perhaps_be_asked(step):
    if step == 2:
        os.kill(os.getpid(), signal.SIGTERM)
"""
TRANSFORMERS = """
from transformers import Trainer, TrainerCallback, TrainingArguments
from themis.integrations.transformers import ThemisCallback, last_checkpoint

class Asking(TrainerCallback):
    def on_step_begin(self, args, state, control, **more):
        perhaps_be_asked(state.global_step)

args = TrainingArguments(
    output_dir=str(themis.checkpoint_dir()), max_steps=50, per_device_train_batch_size=4,
    logging_steps=1, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no",
)
trainer = Trainer(Net(), args, train_dataset=Data(), callbacks=[Asking(), ThemisCallback()])
trainer.train(resume_from_checkpoint=last_checkpoint())
print("reached", trainer.state.global_step)
"""
LIGHTNING = """
import lightning.pytorch as lightning
from themis.integrations.lightning import ThemisCallback, last_checkpoint

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch, index):
        perhaps_be_asked(self.trainer.global_step)
        return self.net(**batch)["loss"]
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

trainer = lightning.Trainer(
    max_epochs=9, accelerator="cpu", callbacks=[ThemisCallback(every_n_steps=1)], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), torch.utils.data.DataLoader(Data(), batch_size=4), ckpt_path=last_checkpoint())
print("reached", trainer.global_step)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "program", "checkpoints"),
    [
        ("transformers", TRANSFORMERS, ["checkpoint-3", "checkpoint-5"]),
        ("lightning", LIGHTNING, ["themis-3.ckpt", "themis-5.ckpt"]),
    ],
)
def test_framework_program_saves_when_asked_resumes_and_ends_at_its_limit(
    package: str, program: str, checkpoints: list[str], tmp_path: Path
) -> None:
    for needed in ("torch", package):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    saved, metrics = tmp_path / "saved", tmp_path / "metrics.jsonl"
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(themis.__file__).parents[1]),
        "HF_HUB_OFFLINE": "1",
        "THEMIS_JOB_ID": "job",
        "THEMIS_METRICS": str(metrics),
        "THEMIS_CHECKPOINT_DIR": str(saved),
        "THEMIS_MAX_ITERATIONS": "5",
    }
    ends, errors = [], ""
    for _ in range(3):
        command = [sys.executable, "-c", COMMON + program]
        done = subprocess.run(
            command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        errors += done.stderr[-2000:]
        ends.append((done.returncode, "reached 5" in done.stdout))
    assert ends == [(75, False), (0, True), (0, False)], errors
    assert sorted(path.name for path in saved.iterdir()) == checkpoints
    told = [json.loads(line) for line in metrics.read_text().splitlines()]
    losses = [each["it"] for each in told if each["loss"] is not None]
    # The third one has nothing left to do, and says the last once more.
    assert losses[:5] == [1, 2, 3, 4, 5]
    assert set(losses[5:]) <= {5}
