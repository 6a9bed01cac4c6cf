"""Training, evaluation and prediction: batches, steps, losses and metrics."""
