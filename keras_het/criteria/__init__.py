"""Losses and metrics in any form that `compile` accepts: what outputs and labels they need."""
