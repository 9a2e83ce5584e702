# bench/models/lstm_lm.py
"""Sizes -> an LSTM language model with its states and a tied head."""

from __future__ import annotations

import torch
from torch import nn


class LstmLm(nn.Module):
    def __init__(self, hidden, layers, vocab):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, vocab)
        self.head.weight = self.embedding.weight

    def forward(self, ids, state=None):
        x, state = self.lstm(self.embedding(ids), state)
        return self.head(x).log_softmax(dim=-1), state


def build(hidden, layers, vocab, tokens, batch):
    return LstmLm(hidden, layers, vocab), (torch.randint(0, vocab, (batch, tokens)),), {}
