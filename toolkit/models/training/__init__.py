"""Training, evaluation and prediction: what runs between batches and metrics."""
