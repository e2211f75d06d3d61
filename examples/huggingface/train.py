"""A tiny BERT, from scratch, with the Trainer of Hugging Face. Nothing is downloaded."""

import argparse

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

import themis
from themis.integrations.transformers import ThemisCallback, last_checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--steps", type=int, default=200, help="of the whole training")
options = parser.parse_args()


class Majority(torch.utils.data.Dataset):
    """Are most of the words of a sentence from the upper half of the vocabulary?"""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        words = torch.randint(0, 64, (15,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": int((words >= 32).sum() > 7)}


set_seed(0)
config = BertConfig(
    vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
)
arguments = TrainingArguments(
    output_dir=themis.checkpoint_dir(),
    learning_rate=options.lr,
    max_steps=options.steps,  # not the limit of a phase: schedules are made from it
    per_device_train_batch_size=16,
    logging_steps=1,
    save_strategy="no",  # the callback says when
    save_total_limit=2,
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(
    BertForSequenceClassification(config),
    arguments,
    train_dataset=Majority(),
    callbacks=[ThemisCallback()],
)
trainer.train(resume_from_checkpoint=last_checkpoint())
print(f"at step {trainer.state.global_step}")
