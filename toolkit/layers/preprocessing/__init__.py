"""Layers that preprocess data: numbers, categories, text and images."""
